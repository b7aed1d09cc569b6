"""What a program does before anything else."""

from __future__ import annotations

import importlib
from importlib import metadata

import pytest

from tests.programs import called
from topology.cli.program import Parser, add_command, fail, needs_extra, version

PROGRAMS = {
    "coterie-topology": "topology.cli.commands",
    "coterie-extender": "extender.command_line",
    "coterie-plugin": "plugin.command_line",
}


@pytest.fixture(params=PROGRAMS)
def program(request):
    """Each program: its name, and what runs a command line of it."""
    main = importlib.import_module(PROGRAMS[request.param]).main
    return request.param, lambda *words: called(main, *words)


def test_programs_have_one_form_of_help(program):
    """Usage, what it is for, its commands in lower case, options as sentences, exit codes."""
    name, run = program
    done = run("--help")
    assert done.exit_code == 0
    usage, about, *_ = done.stdout.split("\n\n")
    assert usage == f"usage: {name} [OPTIONS] COMMAND ..."
    assert about[0].isupper()
    assert about.endswith(".")
    assert "  -h, --help      Show this help and exit.\n" in done.stdout
    assert "  --version       Show the version and exit.\n" in done.stdout
    assert "    completion    print the script" in done.stdout
    assert "\n\nExit codes: 0 " in done.stdout


def test_commands_have_one_form_of_help(program):
    """The line of the list as a sentence, below a usage of what must be given."""
    name, run = program
    done = run("completion", "--help")
    assert done.stdout.startswith(
        f"usage: {name} completion [OPTIONS] SHELL\n\n"
        "Print the script that completes this program's commands in a shell.\n\n"
    )


def test_programs_have_one_form_of_errors(program):
    """One sentence with the next step, and exit code 2."""
    name, run = program
    done = run("nothing")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("error: COMMAND is 'nothing', expected one of ")
    assert done.stderr.endswith(f", completion (see {name} --help)\n")
    assert run().stderr == (
        f"error: the following arguments are required: COMMAND (see {name} --help)\n"
    )


def test_programs_have_one_form_of_version(program):
    """What a bug report names."""
    name, run = program
    done = run("--version")
    assert (done.exit_code, done.stdout) == (0, f"{name} {version()}\n")


def test_usage_names_what_must_be_given():
    """Required options first, then arguments as often as they may stand."""
    parser = Parser(prog="see")
    parser.add_argument("one")
    parser.add_argument("--size", required=True, metavar="N")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("some", nargs="+", metavar="SOME")
    parser.add_argument("more", nargs="*", metavar="MORE")
    assert parser.format_help().startswith(
        "usage: see [OPTIONS] --size N one SOME [SOME ...] [MORE ...]\n"
    )
    own = Parser(prog="see", usage="see this", add_help=False)
    assert own.format_help() == "usage: see this\n"


def test_more_of_a_command_stands_below_its_sentence():
    """Its list has the first line alone."""
    commands = Parser(prog="see").add_subparsers()
    assert add_command(commands, "one", "say one", more="And so on.").description == (
        "Say one.\n\nAnd so on."
    )


def test_an_error_drives_no_terminal(capsys):
    """A name out of a file could hold control characters."""
    with pytest.raises(SystemExit) as ended:
        fail("no \x1b[31m", 3)
    assert (ended.value.code, capsys.readouterr().err) == (3, "error: no ?[31m\n")


def test_the_version_is_the_distributions(monkeypatch):
    """One number for package, image and chart; a folder of sources has none."""
    assert version() == metadata.version("coterie")

    def absent(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    assert version() == "unknown"


def test_a_program_without_its_extra_says_what_to_install(capsys):
    """Not a traceback of some library's name."""
    with pytest.raises(SystemExit) as ended, needs_extra("coterie-plugin", "plugin"):
        raise ModuleNotFoundError(name="grpc")
    assert ended.value.code == 1
    assert capsys.readouterr().err == (
        "error: coterie-plugin needs its dependencies (grpc is not installed): "
        "in a checkout, pip install '.[plugin]'\n"
    )


def test_a_fault_of_our_own_is_no_missing_extra():
    """A module that was renamed must not read as an installation without the extra."""
    with pytest.raises(ModuleNotFoundError), needs_extra("coterie-plugin", "plugin"):
        raise ModuleNotFoundError(name="plugin.gone")
    with pytest.raises(ModuleNotFoundError), needs_extra("coterie-plugin", "plugin"):
        raise ModuleNotFoundError
