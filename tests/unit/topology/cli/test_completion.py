"""What is offered on the tab key: by the program, and by the shells with the script it prints."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.programs import called
from tests.unit.topology.cli.shells import SHELLS, offered
from topology.cli.completion import candidates
from topology.cli.options import make_parser
from topology.cli.program import Parser

HELP = "Rows to list (default 10; all with --all and with --json, whose rows are sets)."


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param(
            ["sh"], ["show\tshow GPUs, links, PCIe levels, NICs and unknowns"], id="command"
        ),
        pytest.param(["--ver"], ["--version\tShow the version and exit."], id="option"),
        pytest.param(["best", "--size", ""], [], id="a value that any text may be"),
        pytest.param(["best", "--policy", "r"], ["required\t"], id="a choice"),
        pytest.param(["best", "--policy=r"], ["--policy=required\t"], id="joined"),
        pytest.param(["rank", "--size=2", "--li"], [f"--limit\t{HELP}"], id="after a joined one"),
        pytest.param(["show", "dgx-2"], ["dgx-2\t"], id="a shipped machine"),
        pytest.param(["show", "/de"], ["/dev/\t"], id="a file"),
        pytest.param(["draw", "-o", "/de"], ["/dev/\t"], id="a file to write"),
        pytest.param(["recordings", ""], [], id="no argument"),
    ],
)
def test_candidates(words, expected):
    """What the program answers, with what each is."""
    parser = make_parser()
    assert candidates(parser, parser.offers, words, os.environ) == expected


def test_a_program_may_offer_more_than_its_parser_knows():
    """By the argument's name, behind the words before it."""
    parser = Parser(prog="see")
    parser.add_argument("--colour")
    parser.add_argument("what")
    words = ["--colour", "a b", "w"]
    found = candidates(parser, lambda name, given: [name, *given], words, os.environ)
    assert found == ["what\t"]
    assert "a b\t" in candidates(parser, lambda _, given: given, [*words[:-1], ""], os.environ)


def test_a_flag_with_a_value_is_true_or_false():
    """By its label; a program that offers no more has its parser's words alone."""
    parser = Parser(prog="see")
    parser.add_argument("--quick", metavar="BOOL")
    assert candidates(parser, parser.offers, ["--quick", ""], os.environ) == ["true\t", "false\t"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_names_the_program(shell, capsys):
    """Which its shell then calls on the tab key."""
    with pytest.raises(SystemExit) as ended:
        make_parser().parse_args(["completion", shell])
    assert ended.value.code == 0
    assert "coterie-topology" in capsys.readouterr().out


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("coterie-topology re", ["recordings"]),
        ("coterie-topology best --affinity nu", ["numa"]),
        ("coterie-topology show my-f", ["my-file"]),
    ],
)
def test_each_shell_completes(shell, line, expected, tmp_path):
    """The shell reads the script that the program prints, and asks the program."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "my-file").touch()
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed here")
    assert offered(shell, line, tmp_path) == expected


def test_an_unknown_shell_is_an_error():
    """One sentence that names the three."""
    done = called(make_parser().parse_args, "completion", "tcsh")
    said = "error: SHELL is 'tcsh', expected one of bash, zsh, fish"
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == f"{said} (see coterie-topology completion --help)\n"
