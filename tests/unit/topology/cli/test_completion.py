"""What the shells offer after a word, by the script that each program prints, and `complete`."""

from __future__ import annotations

import argparse
import importlib

import pytest

from tests.programs import called
from tests.unit.topology.cli.shells import SHELLS, offered
from topology.cli.completion import FILE, add_completion_command, argument_at, complete
from topology.cli.options import make_parser
from topology.cli.program import Parser

PROGRAMS = {
    "coterie-topology": "topology.cli.commands",
    "coterie-extender": "extender.command_line",
    "coterie-plugin": "plugin.command_line",
}


def script_of(program, shell):
    """What the program prints for a shell."""
    done = called(importlib.import_module(PROGRAMS[program]).main, "completion", shell)
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("coterie-topology re", ["recordings"]),
        ("coterie-topology --v", ["--version"]),
        ("coterie-topology completion ", ["bash", "fish", "zsh"]),
        ("coterie-topology best --must", ["--must-include"]),
        ("coterie-topology best --affinity n", ["none", "numa", "nvlink"]),
        ("coterie-topology best --size 2 dgx-1-p", ["dgx-1-p100"]),
        ("coterie-topology show my-f", ["my-file"]),
        ("coterie-topology show --measured my-f", ["my-file"]),
        ("coterie-topology draw -o my-f", ["my-file"]),
        ("coterie-topology best --size ", []),
        ("coterie-extender rep", ["replay"]),
        ("coterie-extender replay my-f", ["my-file"]),
        ("coterie-extender explain my-f", ["my-file"]),
        ("coterie-plugin run --mig-strategy s", ["single"]),
        ("coterie-plugin discover --js", ["--json"]),
        ("coterie-plugin run --pass-device-specs f", ["false"]),
    ],
)
def test_each_shell_completes(shell, line, expected, tmp_path):
    """Commands, options, choices, files and shipped machines, for each program."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "my-file").touch()
    assert offered(shell, script_of(line.split()[0], shell), line, tmp_path) == expected


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_completes_a_value_after_an_equals_sign(shell, tmp_path):
    """In fish the whole word, in the others the value alone."""
    (tmp_path / "files").mkdir()
    script, line = script_of("coterie-topology", shell), "coterie-topology best --policy=p"
    word = "--policy=preferred" if shell == "fish" else "preferred"
    assert offered(shell, script, line, tmp_path) == [word]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("line", "word"), [("see --c", "--colour"), ("see r", "red")])
def test_a_program_without_commands_completes(shell, line, word, tmp_path):
    """Its own options and argument; a quote, a bracket and a colon in a help harm no script."""
    (tmp_path / "files").mkdir()
    assert offered(shell, script_of_parser(plain_parser(), shell), line, tmp_path) == [word]


@pytest.mark.parametrize("shell", SHELLS)
def test_an_argument_of_any_text_is_not_offered(shell, tmp_path):
    """No file either."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "my-file").touch()
    parser = Parser(prog="see")
    parser.add_argument("text")
    assert offered(shell, script_of_parser(parser, shell), "see my", tmp_path) == []


def script_of_parser(parser, shell):
    """The script of a parser, by a command that is another program's."""
    holder = Parser(prog="holder").add_subparsers(required=True)
    add_completion_command(holder, parser)
    return called(holder.choices["completion"].parse_args, shell).stdout


def plain_parser():
    """A program without commands."""
    parser = Parser(prog="see")
    parser.add_argument("--colour", help="The text's [one]: 100 %% of it, \\ and `that`.")
    parser.add_argument("--size", action="append", help=argparse.SUPPRESS)
    parser.add_argument("what", nargs="*", choices=["red", "green"])
    return parser


def test_an_unknown_shell_is_an_error():
    """One sentence that names the three."""
    done = called(make_parser().parse_args, "completion", "tcsh")
    said = "error: SHELL is 'tcsh', expected one of bash, zsh, fish"
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == f"{said} (see coterie-topology completion --help)\n"


A_FILE = (FILE, "A recording, a shipped machine's name, or -.")
SHOW = ("show", "Show GPUs, links, PCIe levels, NICs and unknowns.")
LIMIT = "Rows to list (default 10; all with --all and with --json, whose rows are sets)."


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param(["sh"], [SHOW], id="command"),
        pytest.param(["nothing", ""], [], id="after no command"),
        pytest.param(["--ver"], [("--version", "Show the version and exit.")], id="option"),
        pytest.param(["best", "--size", ""], [], id="a value that any text may be"),
        pytest.param(["best", "--policy", "r"], [("required", "")], id="a choice"),
        pytest.param(["best", "--policy=r"], [("--policy=required", "")], id="joined"),
        pytest.param(["best", "--nothing=r"], [], id="joined to no option"),
        pytest.param(["rank", "--size=2", "--li"], [("--limit", LIMIT)], id="after a joined one"),
        pytest.param(["show", "dgx-2"], [("dgx-2", ""), A_FILE], id="words and files"),
        pytest.param(["show", "--json", "--", "x"], [A_FILE], id="after the end of options"),
        pytest.param(["best", "--size", "2", "x"], [A_FILE], id="after a value"),
        pytest.param(["show", "-", ""], [], id="more than there are"),
        pytest.param(["recordings", ""], [], id="no argument"),
        pytest.param(
            ["show", "--measured", "x"],
            [(FILE, "Measured bandwidths of this very node.")],
            id="files",
        ),
    ],
)
def test_candidates(words, expected):
    """What a protocol that calls the program answers."""
    assert complete(make_parser(), words, {"file": ["dgx-2"]}) == expected


def test_candidates_of_nothing_are_all_commands():
    """As kubectl calls a plugin without any word."""
    names = [name for name, _ in complete(make_parser(), [])]
    assert names == ["show", "value", "best", "rank", "draw", "recordings", "audit", "completion"]


def test_an_argument_that_may_be_repeated_is_offered_again():
    """For each of its words."""
    assert complete(plain_parser(), ["red", "red", ""]) == [("red", ""), ("green", "")]
    assert complete(plain_parser(), ["--si"]) == []


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["show", ""], "file"),
        (["best", "--free", "1"], "free"),
        (["best", "--gpu-model=x"], "gpu_model"),
        (["best", "--gpu"], None),
        (["sh"], None),
        ([], None),
    ],
)
def test_the_argument_under_completion(words, name):
    """So that a program looks up names of the cluster only where one may stand."""
    assert argument_at(make_parser(), words) == name
