"""Benchmarks that start processes of their own, at their smallest."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import typer
from typer.testing import CliRunner

import benchmarks.__main__ as bench
from benchmarks.demo.__main__ import main as demo
from benchmarks.speed import benchmark

TINY = replace(
    benchmark.QUICK, n_names=(8, 4), n_pods=20, n_requests=30, n_builds=1, n_selections=2, n_fits=2
)


def run(program, *arguments):
    """Run a command line in this process."""
    cli = typer.Typer()
    cli.command()(program)
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def speed_tables(tmp_path_factory):
    """Tables that a tiny run of the speed benchmark wrote: core, HTTP, where the time goes."""
    out = tmp_path_factory.mktemp("speed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(benchmark, "QUICK", TINY)
        result = run(bench.main, "speed", "--quick", "--out", out)
    assert result.exit_code == 0, result.output
    return json.loads((out / "speed.json").read_text())["tables"]


def test_the_core_is_measured_from_tables_to_pods(speed_tables):
    """Tables of six machines, three selections, and pods of two and of four containers."""
    rows = {row[0]: row[1:] for row in speed_tables[0]["rows"]}
    assert len(rows) == 6 + 3 + 2
    for sizes in ("[4, 4]", "[2, 2, 2, 2]"):
        assert rows[f"pod of {sizes} on a dgx-2, 1 to 7 GPUs taken"][0] == TINY.n_fits
    assert all(0 < p50 <= p99 <= most for _, p50, p99, most, _ in rows.values())


def test_first_calls_are_among_all_calls(speed_tables):
    """Each length of NodeNames has its own fresh process, so each has first calls."""
    _, _, http, parts = speed_tables
    rows = {row[0]: row[1:] for row in http["rows"]}
    for n_names in TINY.n_names:
        for verb in ("filter", "prioritize"):
            title = f"{verb}, {n_names} names"
            n_all, *_, most, _ = rows[f"{title}, all calls"]
            n_first, *_, most_first, _ = rows[f"{title}, first of its shape"]
            n_later, *_, most_later, _ = rows[f"{title}, shape known"]
            assert n_all == n_first + n_later == TINY.n_requests
            assert n_first > 1
            assert most == max(most_first, most_later)
    assert len(parts["rows"]) == 4
    assert "20 GPU pods bound" in " ".join(http["notes"])


def test_a_demo_without_further_mixes_writes_its_report(tmp_path):
    """Table, chosen pods and report, without the table over several mixes."""
    result = run(demo, "--pods", 12, "--further", 0, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "12 pods, seed 0, on 40 nodes" in result.output
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
