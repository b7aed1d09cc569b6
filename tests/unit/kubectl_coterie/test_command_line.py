"""How commands end, and what is completed."""

from __future__ import annotations

import io
import os
import re
import sys

import pytest

from kubectl_coterie import command_line, options
from kubectl_coterie.commands import known_names, nodes, ui
from kubectl_coterie.errors import CliError
from tests.programs import called

COMMANDS = [
    "explain",
    "nodes",
    "pods",
    "groups",
    "topology",
    "capacity",
    "what-if",
    "audit",
    "check",
    "ui",
    "support-bundle",
    "completion",
]


def run(*words):
    """A command line."""
    return called(command_line.main, *words)


def test_the_help_lists_the_commands():
    """Those that users were promised."""
    shown = run("--help").stdout
    assert re.findall(r"^    ([a-z-]+)(?: |$)", shown, re.MULTILINE) == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_its_help(command):
    """A sentence, and its options."""
    done = run(command, "--help")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: kubectl-coterie {command} [OPTIONS]")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nodes", "-o", "x"), "error: --output/-o is 'x', expected one of wide, json, yaml, name"),
        (("nope",), "error: COMMAND is 'nope', expected one of explain"),
        (("topology",), "error: the following arguments are required: NODE"),
    ],
)
def test_wrong_usage_ends_with_1(words, message):
    """As kubectl does, and with one sentence."""
    done = run(*words)
    assert done.exit_code == 1
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == 1


def raising(error):
    """A command that raises."""

    def fail(_given):
        raise error

    return fail


def test_an_error_is_one_sentence(monkeypatch):
    """On standard error, with what would drive a terminal replaced."""
    monkeypatch.setattr(nodes, "run", raising(CliError("no\x1b[31m")))
    done = run("nodes")
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", "error: no?[31m\n")


def test_ctrl_c_ends_quietly(monkeypatch):
    """With the code that shells have for it."""
    monkeypatch.setattr(ui, "run", raising(KeyboardInterrupt()))
    done = run("ui")
    assert (done.exit_code, done.output) == (130, "")


def test_a_reader_that_leaves_is_no_error(monkeypatch, tmp_path):
    """As `head` does; nothing is flushed into the closed pipe at the end."""
    moved = []
    monkeypatch.setattr(nodes, "run", raising(BrokenPipeError()))
    monkeypatch.setattr(os, "dup2", lambda source, target: moved.append((source, target)))
    with (tmp_path / "stdout").open("w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        with pytest.raises(SystemExit) as ended:
            command_line.main(["nodes"])
        assert [target for _, target in moved] == [stdout.fileno()]
    assert ended.value.code == 0
    os.close(moved[0][0])


def test_a_command_ends_with_its_code(monkeypatch):
    """A check that failed ends with 1."""
    monkeypatch.setattr(nodes, "run", lambda _given: 1)
    assert run("nodes").exit_code == 1


def completed(*words):
    """The lines for the last of the words."""
    return called(command_line.complete, *words).stdout.splitlines()


def test_commands_and_options_are_completed(tmp_path):
    """By kubectl's protocol: a candidate a line, then a directive."""
    assert completed("expl") == ["explain\tsay why a pod waits, or why it has its GPUs", ":4"]
    assert completed("explain", "--names")[0].startswith("--namespace\t")
    assert completed("nodes", "-o", "js")[0].startswith("json\t")
    assert completed("topology", "a b", "--output=y")[0].startswith("--output=yaml")
    (tmp_path / "pods").mkdir()
    name, directive = completed("explain", "-f", f"{tmp_path}/p")
    assert (name.rstrip(), directive) == (f"{tmp_path}/pods/", ":6")


def test_names_that_the_cluster_offers(monkeypatch):
    """By the argument's name, after what is given."""
    monkeypatch.setattr(known_names, "offered", lambda name, words: [name, *words])
    assert completed("topology", "-n", "ml", "")[:2] == ["node\t", "topology\t"]
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-coterie", "topology", "n"])
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    with pytest.raises(SystemExit):
        command_line.complete()
    assert out.getvalue() == "node\t\n:4\n"


def test_options_mean_what_they_mean_for_kubectl():
    """Short and long forms."""
    given = options.make_parser().parse_args(
        ["pods", "-n", "ml", "-A", "-l", "a=b", "-w", "-o", "wide", "--as-group", "g", "p1", "p2"]
    )
    assert (given.namespace, given.all_namespaces, given.selector, given.watch) == (
        "ml",
        True,
        "a=b",
        True,
    )
    assert (given.output, given.as_groups, given.names) == ("wide", ["g"], ["p1", "p2"])
