"""`value --node`: a set over several nodes on the command line."""

from __future__ import annotations

import io
import json
import sys

import pytest

from topology.cli import commands
from topology.model import encode_topology
from topology.recordings import load_recording

FOUR = "dgx-h100:0-3"


@pytest.fixture
def run(capsys, monkeypatch):
    """Run `value`; give its exit code, standard output and standard error."""

    def call(*arguments, stdin=b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as caught:
            commands.main(["value", *map(str, arguments)])
        printed = capsys.readouterr()
        return int(caught.value.code or 0), printed.out, printed.err

    return call


def nodes(*places):
    """The option once for each node."""
    return [word for place in places for word in ("--node", place)]


def facts_of(out):
    """Label and value of the lines of facts, before the table of nodes."""
    lines = out.split("\nNodes\n")[0].splitlines()[1:]
    return {line[:22].strip(): line[24:] for line in lines}


def test_the_node_with_the_fewest_nics_is_named(run):
    """What to change, and each node's part in it."""
    code, out, _ = run(*nodes(FOUR, FOUR, "dgx-h100:4,5"))
    assert code == 0
    assert out.startswith("3 nodes, 10 GPUs\n")
    facts = facts_of(out)
    assert facts["bandwidth"] == "95.6 GB/s"
    assert facts["after the stated error"] == "68.8 GB/s"
    assert facts["limited by"] == "the NICs near the GPUs of node 2"
    assert out.splitlines()[-1].split() == ["2", "dgx-h100", "4,5", "341.0", "2", "400"]


@pytest.mark.parametrize(
    ("places", "limit"),
    [
        pytest.param(
            ["dgx-h100:0-7"] * 2, "what the GPUs of node 0 reach among themselves", id="two nodes"
        ),
        pytest.param(
            ["dgx-h100:0-7"], "what the GPUs of node 0 reach among themselves", id="one node"
        ),
    ],
)
def test_what_limits_is_said_in_words(run, places, limit):
    """Each limit has its own sentence."""
    assert facts_of(run(*nodes(*places))[1])["limited by"] == limit


def test_unknown_nics_are_a_question_mark_and_a_reason(run):
    """Never zero; `null` for programs."""
    out = run(*nodes(FOUR, "8x-b200:0"))[1]
    facts = facts_of(out)
    assert (facts["bandwidth"], facts["after the stated error"]) == ("?", "?")
    assert "limited by" not in facts
    said = "the rates of the NICs within PXB of a node's GPUs are unknown (node 1)"
    assert facts["unknown"] == said
    assert out.splitlines()[-1].split() == ["1", "8x-b200", "0", "-", "2", "?"]
    report = json.loads(run(*nodes(FOUR, "gb200-tray:0,1"), "--json")[1])
    assert (report["value_gbytes_per_s"], report["limit"], report["limiting_node"]) == (None,) * 3
    assert (report["reason"], report["reason_node"]) == ("the NICs of a node are unknown", 1)


def test_nodes_without_recorded_nics_show_no_number_of_them(run):
    """No format says that there is none."""
    last = run(*nodes(FOUR, "summit:0,1"))[1].splitlines()[-1]
    assert last.split() == ["1", "summit", "0,1", "49.9", "?", "-"]


def test_a_value_on_unknown_facts_is_marked(run, tmp_path):
    """It may be shown, and nothing may rest on it."""
    path = tmp_path / "dark.txt"
    path.write_text("GPU0 GPU1\nGPU0 X NV4\nGPU1 NV4 X\n")
    out = run(*nodes(f"{path}:0,1"))[1]
    facts = facts_of(out)
    assert facts["after the stated error"] == "?"
    assert facts["unknown"] == "a node's own set rests on facts that are unknown (node 0)"
    assert out.splitlines()[-1].split()[3].endswith("?")


def test_one_clique_is_one_fabric(run, tmp_path):
    """The clique of the recording's fabric joins its trays, and no other's."""
    tray = encode_topology(load_recording("gb200-tray"))
    places = []
    for name in ("a", "b"):
        path = tmp_path / name
        path.write_text(tray.replace('"fabrics":[{', '"fabrics":[{"clique":"c.1",'))
        places.append(f"{path}:0-3")
    facts = facts_of(run(*nodes(*places))[1])
    assert facts["limited by"] == "the NVLink fabric that joins the nodes"
    assert facts["bandwidth"] == "904.8 GB/s"


def test_standard_input_may_be_several_nodes(run):
    """It is read once, as is every file."""
    text = encode_topology(load_recording("dgx-h100")).encode()
    given = ["--node=-:0-3", "--node=-:4-7", "--node", FOUR, "--json"]
    report = json.loads(run(*given, stdin=text)[1])
    assert [node["gpus"] for node in report["nodes"]] == [[0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 2, 3]]
    assert report["value_gbytes_per_s"] == pytest.approx(4 * 47.8)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        pytest.param(["dgx-h100"], 2, "--gpus is not given, expected GPU indices, or", id="no set"),
        pytest.param(["--node", "0-3"], 2, "is '0-3', expected FILE:GPUS such as", id="no file"),
        pytest.param(["--node", "a:x"], 2, "--node is 'x', expected GPU indices", id="no GPUs"),
        pytest.param(["--node", "nosuch:0"], 3, "'nosuch' is neither a file nor", id="no machine"),
        pytest.param(["--node", "8x-l4:8"], 2, "GPU 8 is not there, expected 0..7", id="GPU 8"),
        pytest.param(["--node", FOUR, "dgx-h100"], 2, "--node with FILE, expected", id="FILE too"),
        pytest.param(["--node", FOUR, "--gpus", "0"], 2, "--node with --gpus", id="GPUs too"),
        pytest.param(["--node", FOUR, "--measured", "m"], 2, "with --measured", id="measured too"),
    ],
)
def test_errors_are_one_sentence(run, arguments, code, message):
    """What is wrong and what is expected."""
    found, out, err = run(*arguments)
    assert (found, out) == (code, "")
    assert message in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
