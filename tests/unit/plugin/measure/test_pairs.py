"""Runs of a benchmark over pairs: what it is given, what is kept, what goes wrong."""

from __future__ import annotations

import json
import shlex
import sys
from typing import Any

import pytest

from plugin.errors import MeasurementError
from plugin.measure import Benchmark, all_pairs, measure
from topology.model.node_topology import MeasuredPair, MeasuredSet, Measurement

UUIDS = ("GPU-a", "GPU-b", "GPU-c")
HEADER = "# size count type redop root time algbw busbw #wrong"


@pytest.fixture
def benchmark_file(tmp_path):
    """A program that prints a table, and notes how it was called."""

    def write(body: str, **options: Any) -> Benchmark:
        script = tmp_path / "bench.py"
        script.write_text(f"import json, os, signal, sys\n{body}\n")
        words = f"{shlex.quote(sys.executable)} {shlex.quote(str(script))} {{n}} {{bytes}}"
        return Benchmark(words, **{"message_bytes": 4096, **options})

    return write


def run(benchmark, sets):
    """Measure; the result, and the progress that was reported."""
    progress = []
    result = measure(
        UUIDS,
        sets,
        benchmark=benchmark,
        visible_devices="DEVICES",
        date="2026-11-21",
        advance=lambda gpus, figure: progress.append((gpus, figure)),
    )
    return result, progress


TELLING = f"""
with open(os.path.join(os.path.dirname(__file__), "calls"), "a") as calls:
    calls.write(json.dumps([sys.argv[1:], os.environ["DEVICES"]]) + "\\n")
print("NCCL version 2.27.3+cuda12.9", file=sys.stderr)
print("{HEADER}")
print(sys.argv[2], "1 float sum -1 1.0 1.0", 10.0 * len(os.environ["DEVICES"]), 0)
"""


def test_each_set_runs_alone_with_its_gpus_visible(benchmark_file, tmp_path):
    """The benchmark sees these GPUs by uuid, and gets how many and how much."""
    benchmark = benchmark_file(TELLING)
    result, progress = run(benchmark, [*all_pairs(3), (0, 1, 2)])
    assert result == Measurement(
        pairs=(MeasuredPair(0, 1, 110.0), MeasuredPair(0, 2, 110.0), MeasuredPair(1, 2, 110.0)),
        sets=(MeasuredSet((0, 1, 2), 170.0),),
        message_bytes=4096,
        nccl_version="2.27.3+cuda12.9",
        date="2026-11-21",
        source=benchmark.command,
    )
    assert progress == [((0, 1), 110.0), ((0, 2), 110.0), ((1, 2), 110.0), ((0, 1, 2), 170.0)]
    calls = [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
    assert calls == [
        [["2", "4096"], "GPU-a,GPU-b"],
        [["2", "4096"], "GPU-a,GPU-c"],
        [["2", "4096"], "GPU-b,GPU-c"],
        [["3", "4096"], "GPU-a,GPU-b,GPU-c"],
    ]


@pytest.mark.parametrize(
    ("body", "options", "message"),
    [
        pytest.param(
            "print('no NCCL here', file=sys.stderr); sys.exit(3)",
            {},
            r"GPUs \(0, 1\): ended with 3, expected 0: 'no NCCL here'",
            id="failed",
        ),
        pytest.param("print('hello')", {}, r"GPUs \(0, 1\): benchmark's output", id="no table"),
        pytest.param("signal.pause()", {"timeout_s": 0}, "no end after 0 s", id="hangs"),
        pytest.param(
            f"print('{HEADER}'); print(os.getpid(), '1 float sum -1 1 1 1 0')",
            {},
            "as before",
            id="another size each time",
        ),
    ],
)
def test_a_run_that_yields_nothing_ends_it(benchmark_file, body, options, message):
    """Half a measurement would rank what was measured against what was not."""
    with pytest.raises(MeasurementError, match=message):
        run(benchmark_file(body, **options), all_pairs(3))


@pytest.mark.parametrize(
    ("command", "message"),
    [
        pytest.param("no-such-benchmark-here", "cannot be started", id="missing"),
        pytest.param("run {gpus}", "only {n} and {bytes}", id="unknown placeholder"),
        pytest.param("run {", "only {n} and {bytes}", id="open brace"),
        pytest.param("run {0}", "only {n} and {bytes}", id="numbered"),
        pytest.param("run '", "only {n} and {bytes}", id="open quote"),
        pytest.param("  ", "is empty", id="empty"),
    ],
)
def test_a_command_that_is_none_is_refused(command, message):
    """Before anything ran."""
    with pytest.raises(MeasurementError, match=message):
        run(Benchmark(command), [(0, 1)])
