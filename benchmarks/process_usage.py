"""Memory and processor time of another process, from proc(5); Linux only."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cpu_s", "resident_mib"]


def cpu_s(pid: int) -> float:
    """User and system seconds that a process has used so far (`stat`, fields 14 and 15)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> tuple[float, float]:
    """Resident memory of a process now and at its highest, MiB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    now, highest = (int(fields[key].split()[0]) / 1024 for key in ("VmRSS", "VmHWM"))
    return now, highest
