"""Tables and files of results."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import benchmarks.report
from benchmarks.report import ResultTable, read_environment, to_markdown, to_text, write_results

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


def test_a_terminal_shows_the_same_figures():
    """Title, figures and notes."""
    assert to_text(TABLE).splitlines() == [
        "Title",
        "",
        "what  n      x",
        "a|b   3  0.123",
        "c     -  2.000",
        "",
        "why",
    ]


def test_a_page_says_by_which_command_and_where_it_was_made(tmp_path):
    """Else nobody could make it again."""
    path = tmp_path / "new" / "name.md"
    environment = read_environment("2026-11-21", {"run": "quick"})
    write_results(path, "python -m benchmarks name", [TABLE], environment)
    text = path.read_text()
    assert text.startswith("# Name\n\n`python -m benchmarks name`: 2026-11-21, commit ")
    assert "run quick" in text
    assert text.endswith(to_markdown(TABLE))


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
