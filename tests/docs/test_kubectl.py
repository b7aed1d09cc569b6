"""The pages that show `kubectl coterie`: commands print what is shown, and errors are real ones."""

from __future__ import annotations

import ast
import doctest
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
import yaml

from kubectl_coterie import command_line
from tests.docs.markdown import OF_KUBECTL, ROOT, blocks, document_id, documents, sessions
from tests.docs.shown_cluster import WAITED_S, shown_cluster
from tests.programs import called
from topology.cli.program import version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PAGE = ROOT / "docs" / "kubectl.md"
TEXT = PAGE.read_text(encoding="utf-8")
SHOWN = [
    pytest.param(path, block.text, id=f"{document_id(path)}:{block.line}")
    for path in documents()
    for block in blocks(path)
    if block.language == "console" and block.text.startswith(OF_KUBECTL)
]
EXAMPLES = ROOT / "docs" / "examples"


@pytest.fixture(scope="module")
def kubectl_coterie(tmp_path_factory) -> Iterator[Callable[[str], str]]:
    """Runs a command that a page shows; its standard output, with one version and one port."""
    folder = tmp_path_factory.mktemp("cluster")
    shutil.copytree(EXAMPLES, folder, dirs_exist_ok=True)
    with pytest.MonkeyPatch.context() as patch, shown_cluster(folder) as kubeconfig:
        clock = time.time
        patch.setenv("KUBECONFIG", str(kubeconfig))
        patch.setenv("NO_COLOR", "1")
        patch.chdir(folder)
        patch.setattr(time, "time", lambda: clock() + WAITED_S)

        def run(command: str) -> str:
            words = shlex.split(command)[2:]
            text = first_line(*words) if words[0] == "ui" else output_of(*words)
            text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:41873", text)
            return "".join(f"{line.rstrip()}\n" for line in text.splitlines()).replace(
                version(), "1.0.0"
            )

        yield run


def output_of(*words: str) -> str:
    """What a command prints; exit code 0 is due."""
    done = called(command_line.main, *words)
    assert done.exit_code == 0, done.output
    return done.stdout


def first_line(*words: str) -> str:
    """What a command prints that runs until ctrl-C."""
    command = [sys.executable, "-m", "kubectl_coterie", *words]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.send_signal(signal.SIGINT)
    assert process.returncode == 128 + signal.SIGINT
    return line


@pytest.mark.parametrize(("path", "text"), SHOWN)
def test_commands_print_what_is_shown(kubectl_coterie, path: Path, text: str, request):
    """On a real extender, through the port-forward; `...` stands for anything."""
    shown = ""
    for command, expected in sessions(text):
        printed = kubectl_coterie(command)
        is_same = doctest.OutputChecker().check_output(expected, printed, doctest.ELLIPSIS)
        shown += f"$ {command}\n{expected if is_same else printed}"
    if request.config.getoption("--update-golden"):
        page = path.read_text(encoding="utf-8")
        path.write_text(page.replace(text, shown), encoding="utf-8")
    else:
        assert shown == text, "`make golden` rewrites the page if this is meant"


def test_every_command_has_its_example():
    """A command that the page leaves out is found by chance alone."""
    offered = called(command_line.complete, "").stdout.splitlines()
    commands = {line.partition("\t")[0] for line in offered if line[0].isalpha()}
    assert "explain" in commands
    shown = set(re.findall(r"^\$ kubectl coterie ([\w-]+)", TEXT, re.MULTILINE))
    named = set(re.findall(r"`kubectl coterie ([\w-]+)", TEXT))
    assert commands - shown - named == set()


def part(heading: str) -> str:
    """The text of a chapter."""
    return TEXT.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def messages() -> Iterator[str]:
    """Every text of the program, each value in it as `…`."""
    for folder in ("kubectl_coterie", "topology/cli"):
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    yield "".join(
                        str(one.value) if isinstance(one, ast.Constant) else "…"
                        for one in node.values
                    )
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value


def test_errors_are_those_of_the_program():
    """Whoever sees a sentence looks it up here, word for word."""
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", part("When it does not work"), re.MULTILINE)
    known = "\n".join(messages())
    sentences = [one for one in rows[2:] if not one.startswith("`")]
    assert sentences
    assert [one for one in sentences if one not in known] == []


def test_who_may_bind_a_reader_is_warned():
    """Beside a second scheduler the Role reaches the port of the verbs: each place says so."""
    places = {
        "docs/kubectl.md": "lets its holder bind pods",
        "SECURITY.md": "with a second scheduler call the extender's verbs",
        "docs/chart.md": "readers can bind pods as the scheduler does",
        "deploy/chart/values.yaml": "readers can bind pods as the scheduler does",
        "deploy/chart/templates/NOTES.txt": "can bind pods of\nall namespaces as the",
        "deploy/chart/templates/rights/reader-rbac.yaml": "filter and bind pods of all namespaces",
    }
    silent = [
        path
        for path, words in places.items()
        if words not in (ROOT / path).read_text(encoding="utf-8")
    ]
    assert silent == []
    assert "--role=coterie-reader --group" not in part("Rights")


def test_rights_are_those_of_the_role():
    """What an administrator grants is what the Role has."""
    template = ROOT / "deploy/chart/templates/rights/reader-rbac.yaml"
    rules = template.read_text(encoding="utf-8").partition("\nrules:")[2].partition("{{")[0]
    role = yaml.safe_load(f"rules:{rules}")
    needed = [(rule["resources"], sorted(rule["verbs"])) for rule in role["rules"]]
    assert needed == [(["pods"], ["get", "list"]), (["pods/portforward"], ["create", "get"])]
    assert "`get` and `list` on `pods`" in part("Rights")
    assert "`get` and `create` on `pods/portforward`" in part("Rights")
