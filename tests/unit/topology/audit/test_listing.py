"""The screen: as wide as the terminal, names cut, and nothing that drives a terminal."""

import pytest

from tests.kubectl_lists import held_by, kube_list, node, pod
from topology.annotations import DevicesReport, UnhealthyDevice
from topology.audit import audit, list_audit, read_cluster
from topology.report.blocks import block_text

LOSING = [(0, 5), (1, 4)]
COLUMNS = "machine            nodes  GPUs  free  stranded  pods       has      could     NVIDIA"
ROW = "8x V100-SXM2-32GB      1     8     5         5     1  6.0  12%  49.9 100%  49.9 100%"


def screen(nodes, pods=(), **fields):
    """The lines of an audit."""
    report = audit(read_cluster(kube_list(*nodes), kube_list(*pods)))
    return block_text(list_audit(report, **fields)).splitlines()


def joined(lines):
    """The text of lines that were wrapped."""
    return " ".join(" ".join(lines).split())


def test_an_empty_cluster_is_one_line():
    """There is nothing to bound."""
    assert screen([]) == ["No node in the list has GPUs."]


def test_one_machine_type():
    """Every column of the tables, and the bounds."""
    pods = [pod("p", "n1", plan=(0, 5)), pod("q", "n1", 1, plan=(6,))]
    lines = screen([node("n1")], pods)
    assert lines[:9] == [
        "The one pod with 2 or more GPUs loses 88 % against the best set its node could give.",
        "",
        "Machine types: mean GB/s of sets and its share of the empty machine's best",
        COLUMNS,
        ROW,
        "",
        "Pods that lose most (could: best of own and free GPUs; NVIDIA: its best-effort)",
        "pod   node  GPUs       has      could     NVIDIA  loses",
        "ml/p  n1    0,5   6.0  12%  49.9 100%  49.9 100%   88 %",
    ]
    assert lines[9:11] == ["", "Bounds"]


def big_cluster():
    """Everything that a screen may hold, and more than it shows of each."""
    kinds = ["dgx-1-v100", "dgx-h100", "8x-l4", "8x-a6000-bridged", "8x-t4", "dgx-1-v100-dead-link"]
    kinds += ["8x-a100-pcie-pairs", "dgx-1-p100"]
    nodes, pods = [], []
    for k in range(24):
        name = f"a-node-with-a-long-name-{k:03}"
        gone = held_by("gone", name, (6,)) if k == 0 else None
        holds = [
            held_by(f"pod-with-a-very-long-name-{k}-{i}", name, g) for i, g in enumerate(LOSING)
        ]
        report = DevicesReport(
            1,
            (UnhealthyDevice("x", f"XID {k}"),),
            tuple([gone, *holds] if gone else holds),
        )
        kind = kinds[k % len(kinds)]
        one = node(name, kind, report=report, allocatable={"nvidia.com/gpu": 8})
        nodes.append(one)
        pods += [pod(f"pod-with-a-very-long-name-{k}-{i}", name) for i in range(2)]
    nodes += [node("bare", None), node("counted"), node("slow", "8x-t4")]
    pods += [pod("x", "bare"), pod("y", "counted"), pod("z", "nowhere")]
    pods += [pod("shared", "slow", resource="nvidia.com/mig-1g.5gb")]
    pods += [pod("single", "counted", 1, plan=(0,))]
    return nodes, pods


def test_a_screen_holds_a_whole_cluster():
    """What does not fit is counted."""
    lines = screen(*big_cluster())
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 100
    text = joined(lines)
    assert "… and 2 more" in text  # machine types
    assert "Also found" in text
    for found in (
        "GPUs with links down: a-node-with-a-long-name-005 GPU 2 (5 of 6)",
        "24 unhealthy GPUs: XID 0 (1), XID 1 (1), XID 10 (1) and 21 more -> drain the node",
        "1 container not judged, GPUs known by number only: ml/y -> see that the reporter runs",
        "1 node not covered, GPUs of pods known by number only: counted -> see that",
        "1 node not covered, no annotation coterie.gpu/topology: bare -> install the node plugin",
        "1 GPU of pods that are not in the list of pods",
        "1 pod with GPUs on nodes that are not in the list of nodes",
    ):
        assert found in text


@pytest.mark.parametrize("width", [100, 130, 160, 400])
def test_the_whole_width_is_used(width):
    """Names are cut where they do not fit, and only there."""
    name = "a-node-that-a-narrow-screen-cannot-hold-{}.eu.compute"
    nodes = [node(name.format(k)) for k in range(3)]
    team = "a-team-with-a-name-that-a-narrow-screen-cannot-hold-{}-worker-0"
    pods = [pod(team.format(k), name.format(k), plan=(0, 5)) for k in range(3)]
    lines = screen(nodes, pods, width=width)
    assert max(map(len, lines)) <= width
    rows = [line.split() for line in lines if line.startswith("ml/")]
    assert len({row[0] for row in rows}) == len({row[1] for row in rows}) == 3
    assert any("…" in row[0] for row in rows) == (width < 160)


def test_on_a_narrow_screen_notes_are_wrapped():
    """Tables are as on one of 100 columns: below that they would have no names left."""
    wide, narrow, least = (screen([node("n1")], width=width) for width in (100, 40, 10))
    assert max(map(len, narrow[-5:])) <= 40
    assert [line for line in wide if "V100" in line] == [line for line in narrow if "V100" in line]
    assert joined(narrow) == joined(wide)
    assert least == narrow


def test_free_gpus_that_are_not_known_are_marked():
    """A count of known ones alone looks like all."""
    lines = screen([node("n1"), node("n2")], [pod("p", "n1")])
    (row,) = (line for line in lines if line.startswith("8x V100"))
    assert row.split()[2:6] == ["2", "16", "8+?", "0+?"]
    assert "+?: on 1 node it is not known which GPUs are free" in lines
    lines = screen([node("n1"), node("n2")], [pod("p", "n1"), pod("q", "n2")])
    assert "+?: on 2 nodes it is not known which GPUs are free" in lines
    assert not any("+?" in line for line in screen([node("n1")]))


def test_machine_types_of_one_name_have_digits_of_their_digests():
    """One has a dead link."""
    lines = screen([node("a"), node("b", "dgx-1-v100-dead-link")])
    assert [line[:22] for line in lines[4:6]] == [
        "8x V100-SXM2-32GB 51ba",
        "8x V100-SXM2-32GB db50",
    ]


def test_names_cannot_drive_a_terminal():
    """A name from a file may hold anything."""
    pods = [pod("p\x1b[31m", "n1", plan=(0, 5))]
    assert any("ml/p?[31m" in line for line in screen([node("n1")], pods))
