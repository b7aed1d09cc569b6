"""`coterie-topology audit`: its forms, and one sentence for each file that it cannot use."""

import io
import json
import sys

import pytest

from tests.kubectl_lists import kube_list, node, pod
from topology.cli import commands, reading

SENTENCE = "The one pod with 2 or more GPUs loses 88 % against the best set its node could give."


@pytest.fixture
def run(capsys, monkeypatch):
    """Run the program; give its exit code, standard output and standard error."""

    def call(*arguments, stdin=b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as caught:
            commands.main(["audit", *(str(argument) for argument in arguments)])
        printed = capsys.readouterr()
        return int(caught.value.code or 0), printed.out, printed.err

    return call


@pytest.fixture
def lists(tmp_path):
    """Keep the two lists in files, and give the options that name them."""
    nodes, pods = tmp_path / "nodes.json", tmp_path / "pods.json"
    nodes.write_text(json.dumps(kube_list(node("n1"))))
    pods.write_text(json.dumps(kube_list(pod("p", "n1", plan=(0, 5)))))
    return "--nodes", nodes, "--pods", pods


def test_text(run, lists):
    """What a person reads."""
    code, out, err = run(*lists)
    assert (code, err) == (0, "")
    assert out.startswith(f"{SENTENCE}\n\nMachine types")


def test_the_terminals_width_is_used(run, tmp_path, monkeypatch):
    """A pipe has 100 columns; what COLUMNS says goes before what the terminal says."""
    name = "a-node-with-a-name-that-100-columns-cannot-hold-01234"
    nodes, pods = tmp_path / "nodes.json", tmp_path / "pods.json"
    nodes.write_text(json.dumps(kube_list(node(name))))
    pods.write_text(json.dumps(kube_list(pod("p" * 40, name, plan=(0, 5)))))
    monkeypatch.setenv("COLUMNS", "200")
    options = ("--nodes", nodes, "--pods", pods)
    assert name not in run(*options)[1]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert name in run(*options)[1]


def test_json(run, lists):
    """What a program reads."""
    code, out, _ = run(*lists, "-o", "json")
    report = json.loads(out)
    assert code == 0
    assert (report["schema_version"], report["headline"]) == (1, SENTENCE)
    assert report["sets"][0]["gpus"] == [0, 5]


def test_one_list_may_come_from_standard_input(run, lists):
    """As `kubectl get pods -A -o json` prints it."""
    code, out, _ = run(*lists[:2], "--pods", "-", stdin=lists[3].read_bytes())
    assert (code, out.splitlines()[0]) == (0, SENTENCE)
    code, _, err = run("--nodes", "-", "--pods", "-")
    assert (code, err) == (
        2,
        "error: --nodes and --pods are both -, expected standard input for one of them\n",
    )


def test_the_lists_exchanged(run, lists):
    """The file, the object, the field and what was expected."""
    code, _, err = run("--nodes", lists[3], "--pods", lists[1])
    said = "items[0] (ml/p): kind is 'Pod', expected Node, as `kubectl get nodes -o json` prints"
    assert (code, err) == (3, f"error: {lists[3]}: {said}\n")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(b"", "is empty, expected what kubectl get -o json prints", id="empty"),
        pytest.param(
            b"NAME",
            "is no JSON (Expecting value: line 1 column 1 (char 0)), "
            "expected what kubectl get -o json prints",
            id="a table",
        ),
        pytest.param(
            b"[" * 100_000,
            "is no JSON (nested too deeply), expected what kubectl get -o json prints",
            id="nested",
        ),
        pytest.param(
            b"\xff{}",
            "is no JSON ('utf-8' codec can't decode byte 0xff in position 0: invalid start byte), "
            "expected what kubectl get -o json prints",
            id="no UTF-8",
        ),
    ],
)
def test_files_that_are_no_list(run, lists, content, said, monkeypatch):
    """One sentence, with the option that named the file; a long name would be cut in it."""
    lists[1].write_bytes(content)
    monkeypatch.chdir(lists[1].parent)
    code, _, err = run(lists[0], lists[1].name, *lists[2:])
    assert (code, err) == (3, f"error: --nodes '{lists[1].name}' {said}\n")


def test_files_that_cannot_be_read(run, lists, monkeypatch):
    """None, and one that is too long."""
    code, _, err = run("--nodes", "none.json", *lists[2:])
    assert (code, err) == (3, "error: 'none.json' cannot be read: no such file or directory\n")
    monkeypatch.setattr(reading, "MAX_LIST_BYTES", 10)
    code, _, err = run(*lists)
    assert code == 3
    assert "has more than 10 bytes, expected a list of a cluster's objects" in err


def test_both_lists_are_needed(run):
    """The machine's own options are not."""
    code, _, err = run("--nodes", "nodes.json")
    assert code == 2
    assert "--pods" in err


def test_an_unknown_form_is_said(run, lists):
    """With the forms there are."""
    code, _, err = run(*lists, "-o", "yaml")
    assert (code, err) == (2, "error: --output is 'yaml', expected one of text, json\n")
