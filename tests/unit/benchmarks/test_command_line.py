"""The command line: what it writes, and what it says where the data is missing."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from benchmarks.__main__ import main

CLI = typer.Typer()
CLI.command()(main)


def run(*arguments):
    """Run the command line."""
    return CliRunner().invoke(CLI, [str(argument) for argument in arguments])


def test_missing_data_is_reported_with_the_path_and_the_option(tmp_path):
    """Exit code 1, one sentence, no traceback."""
    result = run("efficiency", "--shared", tmp_path, "--out", tmp_path)
    assert result.exit_code == 1
    assert "subset_bandwidth.json cannot be read" in result.output.replace("\n", "")
    assert "Traceback" not in result.output


def test_an_unknown_benchmark_is_a_usage_error():
    """Exit code 2."""
    assert run("nonsense").exit_code == 2


@pytest.mark.shared
@pytest.mark.parametrize(
    "name", ["efficiency", "fidelity", "group-fidelity", "replay", "fleet", "groups"]
)
def test_a_smoke_run_writes_tables_and_where_they_were_made(shared, tmp_path, name):
    """JSON and Markdown, marked as a quick run."""
    result = run(name, "--quick", "--shared", shared, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    document = json.loads((tmp_path / f"{name}.json").read_text())
    assert document["tables"]
    assert document["environment"]["arguments"] == {"run": "quick"}
    assert (tmp_path / f"{name}.md").read_text().startswith(f"# {name.capitalize()}\n")
