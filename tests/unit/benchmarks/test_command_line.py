"""The command line: what it writes, and what it says where the data is missing."""

from __future__ import annotations

import pytest

from benchmarks.__main__ import main


def run(*arguments):
    """Run the command line."""
    return main([str(argument) for argument in arguments])


def test_missing_data_is_reported_with_the_path_and_the_option(tmp_path, capsys):
    """Exit code 1, one sentence, no traceback."""
    assert run("efficiency", "--shared", tmp_path, "--out", tmp_path) == 1
    said = capsys.readouterr().err
    assert "subset_bandwidth.json cannot be read" in said
    assert "--shared" in said


def test_an_unknown_benchmark_is_a_usage_error():
    """Exit code 2."""
    with pytest.raises(SystemExit) as ended:
        run("nonsense")
    assert ended.value.code == 2


@pytest.mark.shared
@pytest.mark.parametrize("name", ["efficiency", "fidelity", "group-fidelity", "replay", "groups"])
def test_a_smoke_run_writes_tables_and_where_they_were_made(shared, tmp_path, name):
    """Marked as a quick run."""
    assert run(name, "--quick", "--shared", shared, "--out", tmp_path) == 0
    text = (tmp_path / f"{name}.md").read_text()
    assert text.startswith(f"# {name.capitalize()}\n\n`python -m benchmarks {name}`: ")
    assert "run quick" in text
    assert "\n| " in text
