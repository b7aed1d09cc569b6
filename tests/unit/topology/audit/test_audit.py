"""The whole report: what is counted, what is named, and the sentence that says it."""

import json
from dataclasses import asdict, replace

import pytest
from pydantic import ConfigDict, TypeAdapter

from tests.kubectl_lists import RESOURCE, held_by, kube_list, node, pod
from tests.machines import machine
from topology.annotations import DevicesReport, UnhealthyDevice
from topology.audit import audit, read_cluster, values
from topology.audit.values import AuditReport, PodCounts
from topology.model import AcceleratorLink, Gpu, LinkKind, PcieLevel
from topology.recordings import load_recording

for name in values.__all__:
    # Only tests know pydantic: it turns the classes and their docstrings into schemas.
    getattr(values, name).__pydantic_config__ = ConfigDict(
        use_attribute_docstrings=True, strict=True
    )
ADAPTER = TypeAdapter(AuditReport)


def report_of(nodes, pods=()):
    """Audit lists of some nodes and pods; the JSON keeps its schema."""
    report = audit(read_cluster(kube_list(*nodes), kube_list(*pods)))
    assert ADAPTER.validate_json(json.dumps(asdict(report))) == report
    return report


def test_schema_is_documented(root, check_golden):
    """Programs that read the output are written against docs/schemas."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    schema |= ADAPTER.json_schema(mode="serialization")
    text = json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
    check_golden(root / "docs" / "schemas" / "audit.json", text)


def test_a_pod_that_loses():
    """GPUs 0 and 5 of a DGX-1 are joined by no link, 0 and 3 by two."""
    report = report_of([node("n1")], [pod("p", "n1", plan=(0, 5))])
    (entry,) = report.sets
    assert (entry.namespace, entry.pod, entry.container, entry.node) == ("ml", "p", "main", "n1")
    assert (entry.gpus, entry.could_have_gpus) == ((0, 5), (0, 3))
    assert (entry.source, entry.limit, entry.stated_error) == ("plan", "socket", 0.42)
    assert (entry.loss, entry.is_best) == (0.8798, False)
    assert (entry.could_have.share, entry.replaced.share) == (1, 1)
    assert report.pods == PodCounts(1, 0, 1, 0, 1, 0.8798)
    assert report.headline == (
        "The one pod with 2 or more GPUs loses 88 % against the best set its node could give."
    )
    (kind,) = report.machines
    assert (kind.name, kind.n_nodes, kind.n_gpus, kind.n_free) == (
        "8x Tesla V100-SXM2-32GB",
        *(1, 8, 6),
    )
    assert (kind.n_pods, kind.n_sets, kind.has, kind.is_even) == (1, 1, entry.has, False)
    assert entry.machine == kind.digest


def test_a_set_within_the_models_error_counts_as_best():
    """Values closer than 10 % are equal to the model."""
    report = report_of([node("n1", "dgx-h100-lost-links")], [pod("p", "n1", plan=(4, 5))])
    (entry,) = report.sets
    assert entry.loss > 0.1
    assert not entry.is_best
    report = report_of([node("n1", "dgx-h100-lost-links")], [pod("p", "n1", 7, plan=range(7))])
    assert report.sets[0].is_best == (report.sets[0].loss <= 0.1)


def test_a_pod_is_judged_by_its_worst_container():
    """Both are listed, and the pod counts once."""
    holds = (held_by("p", "n1", (0, 3)), held_by("p", "n1", (1, 4), container="b"))
    report = report_of(
        [node("n1", report=DevicesReport(1, holds=holds))], [pod("p", "n1", {"main": 2, "b": 2})]
    )
    assert [(one.container, one.is_best) for one in report.sets] == [("b", False), ("main", True)]
    assert report.pods == PodCounts(1, 0, 1, 0, 1, report.sets[0].loss)
    assert (report.machines[0].n_pods, report.machines[0].n_sets) == (1, 2)


@pytest.mark.parametrize(
    ("nodes", "pods", "headline"),
    [
        pytest.param([], [], "No node in the list has GPUs.", id="empty lists"),
        pytest.param(
            [node("n1")],
            [pod("p", "n1", 1, plan=(0,))],
            "No pod has 2 or more GPUs in a container, so none has anything to reduce.",
            id="single GPUs",
        ),
        pytest.param(
            [node("n1")],
            [pod("p", "n1"), pod("q", "n1")],
            "None of 2 pods with 2 or more GPUs can be judged.",
            id="known by number",
        ),
        pytest.param(
            [node("n1", None)],
            [pod("p", "n1")],
            "None of 1 pod with 2 or more GPUs can be judged.",
            id="no topology",
        ),
        pytest.param(
            [node("n1")],
            [pod("p", "n1", plan=(0, 3))],
            "The one pod with 2 or more GPUs has the best set its node could give.",
            id="one pod",
        ),
        pytest.param(
            [node("n1")],
            [pod("p", "n1", plan=(0, 3)), pod("q", "n1", plan=(1, 2))],
            "All 2 pods with 2 or more GPUs have the best set their node could give.",
            id="all pods",
        ),
        pytest.param(
            [node("n1"), node("n2"), node("n3")],
            [
                pod("a", "n1", plan=(0, 3)),
                pod("b", "n2", plan=(0, 5)),
                pod("c", "n3", plan=(0, 1)),
            ],
            "1 of 3 pods with 2 or more GPUs has the best set their node could give; "
            "2 lose 69 % in the mean.",
            id="some pods",
        ),
        pytest.param(
            [node("n1"), node("n2")],
            [pod("a", "n1", plan=(0, 3)), pod("b", "n2", plan=(0, 5))],
            "1 of 2 pods with 2 or more GPUs has the best set their node could give; 1 loses 88 %.",
            id="one of two pods",
        ),
    ],
)
def test_headlines(nodes, pods, headline):
    """What a person reads first is true for every number of pods."""
    assert report_of(nodes, pods).headline == headline


def test_what_is_unknown_is_in_no_figure():
    """A pod by number leaves the others of its node without a comparison, and says so."""
    report = report_of([node("n1")], [pod("p", "n1"), pod("q", "n1", plan=(0, 3))])
    assert report.sets == ()
    assert [(one.pod, one.n_gpus, one.reason) for one in report.not_judged] == [
        ("q", 2, "it is not known which other GPUs of its node are free"),
        ("p", 2, "its GPUs are known by number only"),
    ]
    assert report.not_judged[1].has is None
    assert report.not_judged[0].has is not None
    assert report.not_judged[0].has.share == 1
    (kind,) = report.machines
    assert (kind.n_nodes_free_unknown, kind.n_free, kind.has) == (1, 0, None)
    assert [one.node for one in report.uncovered_nodes] == ["n1"]


def test_large_machines_with_unequal_links_are_not_judged():
    """Their sets would have to be searched."""
    gpus = [Gpu(model="NVIDIA A100-SXM4-80GB", numa_node=0)] * 17
    link = AcceleratorLink(LinkKind.NVLINK, 4)
    large = machine(gpus, levels={"else": PcieLevel.NODE}, links={(0, 1): link})
    report = report_of([node("n1", large)], [pod("p", "n1", plan=(0, 5))])
    assert [(one.reason, one.has) for one in report.not_judged] == [
        ("its node has more than 16 GPUs, whose links are not equal", None)
    ]


def test_best_effort_is_nvidias_alone():
    """The plugin of another vendor has another policy."""
    amd = node("n1", "8x-mi300x", allocatable={"amd.com/gpu": 8})
    amd["status"]["capacity"] = {"amd.com/gpu": 8}
    report = report_of([amd], [pod("p", "n1", plan=(0, 1), resource="amd.com/gpu")])
    assert report.sets[0].best_effort is None
    assert report.machines[0].best_effort is None
    assert report.sets[0].has.share == 1


def test_what_else_is_found():
    """Nodes by name, GPUs by reason, and what one list has and the other has not."""
    sick = DevicesReport(
        1,
        (UnhealthyDevice("GPU-b-0", "XID 79"), UnhealthyDevice("GPU-b-1", "XID 79")),
        (held_by("gone", "b", (2,)),),
    )
    nodes = [
        node("b", report=sick),
        node("a", "dgx-1-v100-dead-link", report=DevicesReport(1, (UnhealthyDevice("x", "ECC"),))),
        node("c", None),
        node("cpu", None, allocatable={}),
    ]
    nodes[3]["status"]["capacity"] = {}
    report = report_of(nodes, [pod("p", "elsewhere"), pod("q", "c", 1), pod("r", "cpu", 1)])
    assert [(one.reason, one.n_gpus, one.nodes) for one in report.unhealthy] == [
        ("XID 79", 2, ("b",)),
        ("ECC", 1, ("a",)),
    ]
    assert [(one.node, one.gpu) for one in report.degraded] == [("a", 2), ("a", 6)]
    assert report.n_gpus_of_unlisted_pods == 1
    assert report.n_pods_of_unlisted_nodes == 1
    assert (report.n_nodes, report.n_gpu_nodes, report.n_gpus) == (4, 4, 24)
    assert [one.node for one in report.uncovered_nodes] == ["a", "c", "cpu"]
    assert report.pods == PodCounts(2, 2, 0, 0, 0, None)


def test_pods_that_have_ended_do_not_count():
    """Their GPUs are free, and nodes without pods are nodes all the same."""
    ended = pod("p", "n1", plan=(0, 5), phase="Succeeded")
    report = report_of([node("n1"), node("n2", None)], [ended])
    assert report.pods == PodCounts(0, 0, 0, 0, 0, None)
    assert (report.n_gpu_nodes, report.n_free) == (2, 8)


def test_machine_types_are_named_by_their_gpus():
    """Two models on one node, and GPUs whose model is not known."""
    topology = load_recording("4x-l40s")
    gpus = (*topology.gpus[:3], replace(topology.gpus[3], model=None))
    report = report_of([node("a", replace(topology, gpus=gpus)), node("b"), node("c")])
    assert [one.name for one in report.machines] == [
        "8x Tesla V100-SXM2-32GB",
        "3x NVIDIA L40S + 1x unknown GPU",
    ]
    assert report.machines[0].n_nodes == 2


def test_bounds_are_said():
    """Figures are predictions, and one NVSwitch fabric gains nothing."""
    plain = report_of([node("n1")]).notes
    assert len(plain) == 2
    assert "stated error is 7 to 42 %" in plain[0]
    assert report_of([node("n1"), node("n2", "dgx-h100")]).notes[2] == (
        "No placement gains bandwidth on 1 of 2 machine types, whose sets of a size are all worth "
        "the same, as on one NVSwitch fabric."
    )


def test_the_order_of_the_lists_does_not_count():
    """The API server sorts by name, and other programs do not."""
    nodes = [node(f"n{k}", "8x-a6000-bridged") for k in range(3)]
    pods = [pod(f"p{k}", f"n{k}", plan=(k, k + 3)) for k in range(3)]
    assert report_of(nodes, pods) == report_of(nodes[::-1], pods[::-1])


def test_a_node_is_never_worse_after_re_placement():
    """Full nodes included, and whoever has the devices."""
    sizes = [(0, 5), (1, 4), (2, 7), (3, 6)]
    pods = [pod(f"p{k}", "n1", plan=gpus) for k, gpus in enumerate(sizes)]
    (kind,) = report_of([node("n1")], pods).machines
    assert kind.has is not None
    assert kind.could_have == kind.has == kind.best_effort
    assert kind.replaced is not None
    assert kind.replaced.share == 1
    assert kind.n_free == 0
    assert RESOURCE == "nvidia.com/gpu"
