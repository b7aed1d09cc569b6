"""The benchmarks on the real control plane: a smoke run of each, whose figures mean nothing."""

from __future__ import annotations

import json
import os
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
    environment = os.environ | {"COLUMNS": "160"}
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    tables = {path.stem: json.loads(path.read_text())["tables"] for path in tmp_path.glob("*.json")}
    assert sorted(tables) == [
        "cluster-group-latency",
        "cluster-pending",
        "cluster-placement",
        "cluster-scale",
        "cluster-throughput",
    ]
    assert all(table["rows"] for one in tables.values() for table in one)
    arms = [row[0] for row in tables["cluster-throughput"][0]["rows"]]
    assert arms == [arm.value for arm in Arm]
    left_out = [row[2] for row in tables["cluster-placement"][0]["rows"]]
    assert left_out == [0, 0, 0]
