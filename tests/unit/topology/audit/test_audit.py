"""The whole report: what is counted, what is named, and the sentence that says it."""

import json
from dataclasses import asdict, replace
from itertools import combinations

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
    assert entry.could_have.share == 1
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
            "None of 2 pods with 2 or more GPUs can be judged; covered 0 of 1 GPU node.",
            id="known by number",
        ),
        pytest.param(
            [node("n1", None)],
            [pod("p", "n1")],
            "The one pod with 2 or more GPUs cannot be judged; covered 0 of 1 GPU node.",
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
        pytest.param(
            [node("n1"), *(node(f"m{i}", None) for i in range(99))],
            [pod("a", "n1", plan=(0, 3)), *(pod(f"p{i}", f"m{i}") for i in range(99))],
            "1 of 100 pods with 2 or more GPUs could be judged: it has the best set its node could "
            "give; 99 not judged; covered 1 of 100 GPU nodes.",
            id="one of many is judged",
        ),
        pytest.param(
            [node("n1"), node("n2", None)],
            [pod("a", "n1", plan=(0, 5)), pod("b", "n2")],
            "1 of 2 pods with 2 or more GPUs could be judged: it loses 88 % against the best set "
            "its node could give; 1 not judged; covered 1 of 2 GPU nodes.",
            id="the one that is judged loses",
        ),
        pytest.param(
            [node("n1"), node("n2"), node("n3", None)],
            [pod("a", "n1", plan=(0, 3)), pod("b", "n2", plan=(0, 3)), pod("c", "n3")],
            "2 of 3 pods with 2 or more GPUs could be judged: all 2 have the best set their node "
            "could give; 1 not judged; covered 2 of 3 GPU nodes.",
            id="those that are judged lose nothing",
        ),
        pytest.param(
            [node("n1"), node("n2"), node("n3", None)],
            [pod("a", "n1", plan=(0, 3)), pod("b", "n2", plan=(0, 5)), pod("c", "n3")],
            "2 of 3 pods with 2 or more GPUs could be judged: 1 has the best set their node could "
            "give, 1 loses 88 %; 1 not judged; covered 2 of 3 GPU nodes.",
            id="some of those that are judged lose",
        ),
        pytest.param(
            [node("n1"), node("n2", None)],
            [pod("a", "n1", plan=(0, 3))],
            "The one pod with 2 or more GPUs has the best set its node could give; covered 1 of 2 "
            "GPU nodes.",
            id="a node without pods is not covered",
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


def test_nodes_that_take_no_pods_have_no_free_gpus():
    """They are counted apart, and their pods are judged all the same."""
    lost, cordoned, counted = node("n1"), node("n2"), node("n3")
    lost["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    cordoned["spec"]["unschedulable"] = True
    counted["spec"]["unschedulable"] = True
    counted["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    pods = [pod("p", "n1", plan=(0, 5)), pod("q", "n3")]
    report = report_of([lost, cordoned, counted, node("n4")], pods)
    assert [(one.node, one.n_free, one.reason) for one in report.unavailable_nodes] == [
        ("n1", 6, "NotReady"),
        ("n2", 8, "cordoned"),
        ("n3", None, "cordoned and NotReady"),
    ]
    assert (report.n_free, report.n_stranded, report.n_covered_nodes) == (8, 0, 3)
    assert report.machines[0].n_nodes_free_unknown == 1
    assert report.sets[0].could_have.share == 1


def test_a_number_that_cannot_be_read_leaves_its_node_uncovered():
    """Also where the node has nothing else that shows GPUs."""
    bad, bare = (
        node("n1", allocatable={RESOURCE: "x"}),
        node("n2", None, allocatable={RESOURCE: "x"}),
    )
    bare["status"]["capacity"] = {}
    report = report_of([bad, bare, node("n3")], [pod("p", "n3", plan=(0, 3))])
    assert [(one.node, one.kind) for one in report.uncovered_nodes] == [
        ("n1", "quantity"),
        ("n2", "no-topology"),
    ]
    assert (report.n_gpu_nodes, len(report.sets)) == (3, 1)


def test_pods_with_claims_are_named():
    """Those on nodes of the list, by name."""
    spec = {"resourceClaims": [{"name": "gpu"}]}
    pods = [
        pod(name, where, 0, spec=spec) for name, where in (("b", "n1"), ("a", "n1"), ("c", "x"))
    ]
    found = report_of([node("n1")], pods).claiming_pods
    assert [(one.pod, one.node) for one in found] == [("a", "n1"), ("b", "n1")]


def mig_node(n_whole, **fields):
    """A node some of whose GPUs are in MIG mode, which its topology does not show."""
    one = node("n1", allocatable={RESOURCE: n_whole, "nvidia.com/mig-1g.5gb": 7}, **fields)
    one["status"]["capacity"] = dict(one["status"]["allocatable"])
    return one


def test_free_gpus_in_mig_mode_are_the_least_favourable_ones():
    """GPU 3 is the one that 0 is joined to by two links, beside 4, so it matters which is split."""
    report = report_of([mig_node(6)], [pod("p", "n1", plan=(0, 5))])
    (entry,) = report.sets
    worst = min(
        (
            report_of([node("n1")], [entry_pod, pod("x", "n1", plan=split)]).sets[0]
            for split in combinations((1, 2, 3, 4, 6, 7), 2)
            for entry_pod in [pod("p", "n1", plan=(0, 5))]
        ),
        key=lambda one: one.could_have.gbytes_per_s,
    )
    assert report.sets[0].could_have == worst.could_have
    assert entry.could_have_gpus == worst.could_have_gpus
    assert (report.n_free, report.split_nodes, report.uncovered_nodes) == (4, ("n1",), ())


def test_a_node_in_mig_mode_without_sets_has_fewer_free_gpus():
    """Which ones these are does not matter to any figure."""
    report = report_of([mig_node(7)], [pod("p", "n1", 1, plan=(0,))])
    assert (report.n_free, report.split_nodes) == (6, ("n1",))


def test_choices_of_gpus_in_mig_mode_are_bounded():
    """On 16 GPUs there would be 12,870 of 8; nothing is judged there."""
    one = node("n1", "dgx-2", allocatable={RESOURCE: 8, "nvidia.com/mig-1g.5gb": 7})
    one["status"]["capacity"] = dict(one["status"]["allocatable"])
    report = report_of([one])
    assert (report.n_free, report.split_nodes) == (0, ())
    assert [(one.kind, one.reason) for one in report.uncovered_nodes] == [
        (
            "shared",
            "8 of its GPUs are in MIG mode, not known which: which are free is not known",
        )
    ]


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
    assert len(plain) == 1
    assert "stated error is 7 to 42 %" in plain[0]
    assert report_of([node("n1"), node("n2", "dgx-h100")]).notes[1] == (
        "No placement gains bandwidth on 1 of 2 machine types, whose sets of a size are all worth "
        "the same, as on one NVSwitch fabric."
    )


def test_the_order_of_the_lists_does_not_count():
    """The API server sorts by name, and other programs do not."""
    nodes = [node(f"n{k}", "8x-a6000-bridged") for k in range(3)]
    pods = [pod(f"p{k}", f"n{k}", plan=(k, k + 3)) for k in range(3)]
    assert report_of(nodes, pods) == report_of(nodes[::-1], pods[::-1])


def test_on_a_full_node_each_has_what_it_could_have():
    """The others stay where they are."""
    sizes = [(0, 5), (1, 4), (2, 7), (3, 6)]
    pods = [pod(f"p{k}", "n1", plan=gpus) for k, gpus in enumerate(sizes)]
    (kind,) = report_of([node("n1")], pods).machines
    assert kind.has is not None
    assert kind.could_have == kind.has == kind.best_effort
    assert kind.n_free == 0
    assert RESOURCE == "nvidia.com/gpu"
