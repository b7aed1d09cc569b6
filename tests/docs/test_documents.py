"""What the documents claim about the project: links, targets, commands, sentences."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.markdown import (
    OF_KUBECTL,
    ROOT,
    Block,
    anchors,
    blocks,
    document_id,
    documents,
    links,
    prose,
    sessions,
)
from topology.value import STATED_ERROR

DOCUMENTS = documents()
COMMANDS = [
    pytest.param(path, block.text, id=f"{document_id(path)}:{block.line}")
    for path in DOCUMENTS
    for block in blocks(path)
    if block.language == "console" and not block.text.startswith(OF_KUBECTL)
]
"""Those of `kubectl coterie` need a cluster, which tests/docs/test_kubectl.py has."""
SCRIPTS = [
    pytest.param(block.text, id=f"{document_id(path)}:{block.line}")
    for path in DOCUMENTS
    for block in blocks(path)
    if block.language in {"sh", "bash"}
]
TARGETS = set(
    re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
)
README_LINES, README_COLUMNS = 90, 160
PACKAGES = ("benchmarks", "extender", "kube", "kubectl_coterie", "plugin", "topology")
TEMPLATE = ROOT / "docs" / "adr" / "0000-template.md"
RECORDS = sorted(set((ROOT / "docs" / "adr").glob("[0-9]*.md")) - {TEMPLATE})


def run(command: str, folder: Path) -> str:
    """Run a command as a reader would, with the project's programs on PATH; exit code 0 is due."""
    programs = str(Path(sys.executable).parent)
    environment = {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "COLUMNS": "100",
        "NO_COLOR": "1",
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{command!r} exited {done.returncode}:\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize(("path", "text"), COMMANDS)
def test_commands_print_what_is_shown(path, text, tmp_path, request):
    """What a reader copies must do what the page shows; `...` stands for anything.

    `pod.yaml` is the page's first Pod.
    """
    pods = [one.text for one in blocks(path) if "kind: Pod\n" in one.text]
    (tmp_path / "pod.yaml").write_text("".join(pods[:1]), encoding="utf-8")
    shown = ""
    for command, expected in sessions(text):
        printed = "".join(f"{line.rstrip()}\n" for line in run(command, tmp_path).splitlines())
        is_same = doctest.OutputChecker().check_output(expected, printed, doctest.ELLIPSIS)
        shown += f"$ {command}\n{expected if is_same else printed}"
    if request.config.getoption("--update-golden"):
        page = path.read_text(encoding="utf-8")
        path.write_text(page.replace(text, shown), encoding="utf-8")
    else:
        assert shown == text, "`make golden` rewrites the page if this is meant"


@pytest.mark.parametrize("text", SCRIPTS)
def test_scripts_are_shell(text):
    """Blocks that are too long-running to run here must at least be commands that bash reads."""
    done = subprocess.run(
        ["bash", "-n"], input=text, capture_output=True, text=True, timeout=10, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("path", DOCUMENTS, ids=document_id)
def test_links_lead_somewhere(path):
    """A link to a file or heading that is gone is worse than none."""
    broken = []
    for target in links(path):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=document_id)
def test_make_targets_exist(path):
    """Every `make target` that a document names must be one."""
    text = path.read_text(encoding="utf-8")
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE))
    assert named - TARGETS == set()


@pytest.mark.parametrize("path", DOCUMENTS, ids=document_id)
def test_one_sentence_per_line(path):
    """A change to one sentence should show as a change to one line."""
    text = re.sub(r"^ *\d+\. ", "", prose(path), flags=re.MULTILINE)
    two = [
        line
        for line in text.splitlines()
        if not line.lstrip().startswith("|") and re.search(r"[a-z0-9)`]\. [A-Z`]", line)
    ]
    assert two == []


def test_documents_that_code_names_exist():
    """A docstring that sends a reader to a page must send him to one that is there."""
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for folder in ("topology", "kube", "extender", "plugin", "benchmarks", "tests")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name in re.findall(r"\bdocs/[\w/.-]+\.md\b", path.read_text(encoding="utf-8"))
        if not (ROOT / name).exists()
    ]
    assert missing == []


def test_every_decision_is_listed():
    """A record that the index leaves out cannot be found without its number."""
    folder = ROOT / "docs" / "adr"
    records = {path.name for path in folder.glob("[0-9]*.md")}
    assert {target for target in links(folder / "README.md") if "/" not in target} == records


@pytest.mark.parametrize("path", RECORDS, ids=document_id)
def test_a_record_has_one_number_and_one_title(path):
    """Others refer to a record by its number: file, heading and index must agree."""
    heading = path.read_text(encoding="utf-8").partition("\n")[0]
    number, _, title = heading.removeprefix("# ").partition(": ")
    index = (path.parent / "README.md").read_text(encoding="utf-8")
    assert number == path.name[:4]
    assert f"| [{number}]({path.name}) | {title} |" in index


def test_readme_is_short():
    """A reader has a minute for the first page."""
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= README_LINES
    assert [one for one in lines if len(one) > README_COLUMNS] == []


def test_results_are_of_committed_code_and_say_how_to_make_them_again():
    """What was measured with uncommitted changes cannot be reproduced."""
    results = (ROOT / "benchmarks" / "results").glob("*.md")
    heads = {one.stem: one.read_text("utf-8").splitlines()[2] for one in results}
    made = re.compile(r"`python -m benchmarks[\w. -]*`: \S+, commit [0-9a-f]{12}, .*")
    assert heads
    assert [name for name, head in heads.items() if not made.fullmatch(head)] == []


def test_stated_errors_are_those_of_the_model():
    """A pod's owner reckons with them when choosing a bound."""
    guide = (ROOT / "docs" / "user-guide.md").read_text(encoding="utf-8")
    (sentence,) = re.findall(r"^The model's stated error is subtracted .*$", guide, re.MULTILINE)
    shares = {round(100 * share) for share in STATED_ERROR.values()} - {0}
    assert {int(one) for one in re.findall(r"(\d+) %", sentence)} == shares
    limits = {limit.name.lower() for limit, share in STATED_ERROR.items() if share}
    assert {one for one in limits if one not in sentence} == set()


def test_no_machine_paths_in_documents():
    """A page must read the same on every machine, so it names no folder of ours."""
    found = [
        f"{document_id(path)}: {line}"
        for path in DOCUMENTS
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"(?<![\w.])/(work|home|root|tmp)/", line)
    ]
    assert found == []


def test_no_document_installs_the_project_by_its_name():
    """The project is on no package index, so whoever takes its name there would be installed."""
    sources = [path for name in PACKAGES for path in (ROOT / name).rglob("*.py")]
    found = [
        f"{path.relative_to(ROOT)}: {line}"
        for path in (*DOCUMENTS, *sources)
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"\bpip3? install [^.]*\bcoterie\b", line)
    ]
    assert found == []


def test_blocks_name_their_language():
    """A block without a language is neither highlighted nor checked."""
    bare: list[tuple[str, Block]] = [
        (document_id(path), block)
        for path in DOCUMENTS
        for block in blocks(path)
        if not block.language
    ]
    assert bare == []
