"""The screen: 100 columns and some 40 rows, names cut, and nothing that drives a terminal."""

from tests.kubectl_lists import held_by, kube_list, node, pod
from topology.annotations import DevicesReport, UnhealthyDevice
from topology.audit import audit, list_audit, read_cluster
from topology.cli.printing import table_report

LOSING = [(0, 5), (1, 4)]
COLUMNS = (
    "machine            nodes  GPUs  free  stranded  pods  "
    "     has      could     NVIDIA  re-placed"
)
ROW = (
    "8x V100-SXM2-32GB      1     8     5         5     1  "
    "6.0  12%  49.9 100%  49.9 100%  49.9 100%"
)


def screen(nodes, pods=()):
    """The lines of an audit."""
    report = audit(read_cluster(kube_list(*nodes), kube_list(*pods)))
    return table_report(list_audit(report)).splitlines()


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
        pods += [
            pod(f"pod-with-a-very-long-name-{k}-{i}", name, spec={"nodeSelector": {"a": "b"}})
            for i in range(2)
        ]
    nodes += [node("bare", None), node("counted"), node("slow", "8x-t4")]
    pods += [pod("x", "bare"), pod("y", "counted"), pod("z", "nowhere")]
    pods += [pod("shared", "slow", resource="nvidia.com/mig-1g.5gb")]
    pods += [pod("single", "counted", 1, plan=(0,))]
    return nodes, pods


def test_a_screen_holds_a_whole_cluster():
    """What does not fit is counted."""
    lines = screen(*big_cluster())
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 100
    text = "\n".join(lines)
    assert "… and 2 more" in text  # machine types
    assert "Also found" in text
    for found in (
        "1 pod may be on faster GPUs than they use: ml/single",
        "GPUs with links down: a-node-with-a-long-name-005 GPU 2 (5 of 6)",
        "24 unhealthy GPUs: XID 0 (1), XID 1 (1), XID 10 (1) and 21 more",
        "1 container not judged, its GPUs are known by number only: ml/y",
        "2 nodes not covered: bare (it has no annotation coterie.gpu/topology), counted (",
        "1 GPU of pods that are not in the list of pods",
        "1 pod with GPUs on nodes that are not in the list of nodes",
    ):
        assert found in text


def test_machine_types_of_one_name_have_digits_of_their_digests():
    """One has a dead link."""
    lines = screen([node("a"), node("b", "dgx-1-v100-dead-link")])
    assert [line[:18] for line in lines[4:6]] == ["8x V100-SXM2… 51ba", "8x V100-SXM2… db50"]


def test_names_cannot_drive_a_terminal():
    """A name from a file may hold anything."""
    pods = [pod("p\x1b[31m", "n1", plan=(0, 5))]
    assert any("ml/p?[31m" in line for line in screen([node("n1")], pods))
