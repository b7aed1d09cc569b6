"""The benchmarks on the real control plane: a smoke run of each, whose figures mean nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.cluster.stage import Arm

ROOT = Path(__file__).resolve().parents[3]

pytestmark = pytest.mark.cluster


@pytest.mark.usefixtures("binaries")
def test_each_benchmark_runs_and_keeps_its_tables(tmp_path):
    """A benchmark that is not run between releases would be broken when it is needed."""
    command = [sys.executable, "-m", "benchmarks.cluster", "all", "--quick", "--out", str(tmp_path)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    pages = {path.stem: path.read_text() for path in tmp_path.glob("*.md")}
    assert sorted(pages) == [
        "cluster-group-latency",
        "cluster-pending",
        "cluster-placement",
        "cluster-scale",
        "cluster-throughput",
    ]
    throughput = pages["cluster-throughput"]
    assert all(f"| {arm.value} | " in throughput for arm in Arm)
    placed = [line for line in pages["cluster-placement"].splitlines() if line.startswith("| ")]
    assert [line.split(" | ")[2] for line in placed[1:]] == ["0", "0", "0"]
