"""A wall clock of its own for one Python program, so that it alone can jump.

Returns the environment under which a program's `time.time`, `time.time_ns` and `datetime.now` are
off by as many seconds as a file says, from the moment on that the file changes. The monotonic clock
goes on as it does on a machine whose clock is set. C code that reads the clock itself (TLS, for the
validity of certificates) sees the real time.
"""

from __future__ import annotations

import datetime as dt
import os
import time
from pathlib import Path
from typing import Self

__all__ = ["FILE", "install", "set_offset", "skewed"]

FILE = "COTERIE_TEST_SKEW_FILE"
_ROOT = Path(__file__).resolve().parents[3]
_READ_EVERY_S = 0.02


def skewed(folder: Path) -> dict[str, str]:
    """Environment of a Python program whose clock `set_offset` moves.

    Python imports `sitecustomize` from its path before anything else (module site).
    """
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(
        "from tests.cluster.control.skew import install\n\ninstall()\n", encoding="utf-8"
    )
    set_offset(folder, 0)
    return {"PYTHONPATH": f"{folder}{os.pathsep}{_ROOT}", FILE: str(folder / "offset")}


def set_offset(folder: Path, offset_s: float) -> None:
    """Make the clock jump."""
    partial = folder / "offset.partial"
    partial.write_text(repr(float(offset_s)), encoding="utf-8")
    partial.replace(folder / "offset")


def install() -> None:
    """Take over this process's clock; called by the `sitecustomize` that `skewed` wrote."""
    file = Path(os.environ[FILE])
    true_ns, monotonic = time.time_ns, time.monotonic
    offset_ns, read_s = 0, float("-inf")

    def now_ns() -> int:
        nonlocal offset_ns, read_s
        if monotonic() - read_s > _READ_EVERY_S:
            read_s = monotonic()
            offset_ns = int(float(file.read_text(encoding="utf-8")) * 1e9)
        return true_ns() + offset_ns

    class SkewedDatetime(dt.datetime):
        """The class under its own name, with another opinion of now."""

        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Self:
            return cls.fromtimestamp(now_ns() / 1e9, tz)

    time.time_ns = now_ns
    time.time = lambda: now_ns() / 1e9
    dt.datetime = SkewedDatetime  # type: ignore[misc]  # deceiving is what this is for
