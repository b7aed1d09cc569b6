"""Tables and files of results."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

from rich.console import Console

import benchmarks.report
from benchmarks.report import ResultTable, read_environment, to_markdown, to_rich, write_results

TABLE = ResultTable("Title", ("what", "n", "x"), (("a|b", 3, 0.12345), ("c", None, 2.0)), ("why",))


def test_markdown_rounds_and_escapes():
    """Floats get three decimals, nothing is a dash, a bar does not break the table."""
    assert to_markdown(TABLE).splitlines() == [
        "## Title",
        "",
        "| what | n | x |",
        "|---|---:|---:|",
        "| a\\|b | 3 | 0.123 |",
        "| c | - | 2.000 |",
        "",
        "- why",
    ]


def test_terminal_shows_the_same_figures():
    """Title, figures and notes are there."""
    console = Console(width=80, file=io.StringIO())
    with console.capture() as capture:
        console.print(to_rich(TABLE))
    shown = capture.get()
    assert all(text in shown for text in ("Title", "0.123", "why"))


def test_results_keep_whole_figures_and_where_they_were_made(tmp_path):
    """JSON holds unrounded figures and the environment; Markdown names date and commit."""
    environment = read_environment("2026-11-21", {"run": "quick"})
    as_json, as_markdown = write_results(tmp_path / "new", "name", [TABLE], environment)
    document = json.loads(as_json.read_text())
    assert document["tables"][0]["rows"][0][2] == 0.12345
    assert document["environment"]["n_cores"] >= 1
    assert document["environment"]["commit"]
    text = as_markdown.read_text()
    assert text.startswith("# Name\n\n2026-11-21, commit ")
    assert "run quick" in text


def test_a_result_is_no_uncommitted_change(tmp_path):
    """Else each benchmark of several would be said to have measured other code than the first."""
    folder = tmp_path / "benchmarks"
    code, result = folder / "report.py", folder / "results" / "one.md"
    result.parent.mkdir(parents=True)
    shutil.copy(Path(benchmarks.report.__file__), code)
    (folder / "__init__.py").touch()
    result.write_text("1")

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def commit() -> str:
        read = "from benchmarks.report import read_environment as e; print(e('', {}).commit)"
        return run(sys.executable, "-c", read)

    run("git", "init", "--quiet")
    run("git", "add", ".")
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    run("git", *identity, "commit", "--quiet", "--message", "one")
    clean = run("git", "rev-parse", "--short=12", "HEAD")
    result.write_text("2")
    assert commit() == clean
    code.write_text(code.read_text() + "\n")
    assert commit() == f"{clean}-dirty"
