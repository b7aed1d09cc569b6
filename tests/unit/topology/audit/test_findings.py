"""What stands below the tables: a line per reason, with a count and the next step."""

import pytest

from tests.kubectl_lists import RESOURCE, held_by, kube_list, node, pod
from topology.annotations import DeviceHold, DevicesReport, MissingDevices
from topology.audit import audit, read_cluster
from topology.audit.cluster import ProblemKind, UnjudgedReason
from topology.audit.findings import list_findings

REPORTER = "install the node plugin as a reporter there, or read its log where it runs"
BY_DESIGN = "not judged by design"


def findings(nodes, pods=()):
    """Each finding and its step."""
    report = audit(read_cluster(kube_list(*nodes), kube_list(*pods)))
    return [(one.text, one.step) for one in list_findings(report)]


def test_nothing_is_found():
    """Then nothing is listed."""
    assert findings([node("n1")], [pod("p", "n1", plan=(0, 3))]) == []


def test_nodes_are_grouped_by_reason():
    """With a count, the first names, and what to do."""
    nodes = [node(f"n{k}", None) for k in range(5)]
    nodes += [node("shared", "8x-l4", allocatable={RESOURCE: "1k"})]
    assert findings(nodes) == [
        (
            "5 nodes not covered, no annotation coterie.gpu/topology: n0, n1, n2 and 2 more",
            REPORTER,
        ),
        (
            "1 node not covered, GPUs in shares (time-slicing, MPS) or in MIG mode: shared",
            BY_DESIGN,
        ),
    ]


def test_a_node_is_counted_once():
    """By its first problem, though it has two."""
    found = findings([node("n1", allocatable={RESOURCE: 5})], [pod("p", "n1")])
    assert [text for text, _ in found if "node" in text] == [
        "1 node not covered, GPUs of pods known by number only: n1"
    ]


def test_containers_are_grouped_by_reason():
    """The words suit one and many."""
    pods = [pod(f"p{k}", "n1") for k in range(4)]
    found = findings([node("n1", None)], pods)
    assert found[1:] == [
        (
            (
                "4 containers not judged, no topology of the node that can be read: "
                "ml/p0, ml/p1, ml/p2 and 1 more"
            ),
            "cover the node first, as above",
        )
    ]


@pytest.mark.parametrize("kind", ProblemKind)
def test_every_reason_of_a_node_has_words(kind):
    """A new one is not forgotten."""
    by_kind = {
        ProblemKind.NO_TOPOLOGY: node("n1", None),
        ProblemKind.UNREADABLE: node("n1", None, annotations={"coterie.gpu/topology": "{"}),
        ProblemKind.QUANTITY: node("n1", allocatable={RESOURCE: "1.5"}),
        ProblemKind.BY_NUMBER: node("n1"),
        ProblemKind.SHARED: node("n1", allocatable={RESOURCE: 32}),
        ProblemKind.FEWER: node("n1", allocatable={RESOURCE: 5}),
    }
    pods = [pod("p", "n1")] if kind is ProblemKind.BY_NUMBER else []
    report = audit(read_cluster(kube_list(by_kind[kind]), kube_list(*pods)))
    assert [one.kind for one in report.uncovered_nodes] == [kind.value]
    assert next(list_findings(report)).text.startswith("1 node not covered, ")


def test_every_reason_of_a_container_has_words():
    """A new one is not forgotten."""
    ids = ("GPU-n1-0::0", "GPU-n1-1::0")
    report = DevicesReport(
        1,
        holds=(DeviceHold("uid-a", "ml", "a", "main", RESOURCE, ids), held_by("d", "n1", (2, 3))),
        missing=(MissingDevices("uid-b", "ml", "b", "main", RESOURCE),),
    )
    pods = [
        *(pod(name, "n1") for name in "abcd"),
        pod("e", "n1", plan=(3, 4)),
        pod("f", "n2"),
        pod("g", "n3", plan=(0, 1)),
    ]
    nodes = [node("n1", report=report), node("n2", None), node("n3")]
    found = audit(read_cluster(kube_list(*nodes), kube_list(*pods)))
    reasons = {one.reason for one in found.not_judged}
    assert reasons == {one.value for one in UnjudgedReason} - {UnjudgedReason.UNEQUAL.value}
    texts = [one.text for one in list_findings(found) if "container" in one.text]
    assert len(texts) == len(reasons)


def test_nodes_that_take_no_pods():
    """One GPU or several."""
    full, cordoned = node("n1"), node("n2")
    for one in (full, cordoned):
        one["spec"]["unschedulable"] = True
    step = "uncordon or repair to use them"
    pods = [pod("p", "n1", 7, plan=range(7)), pod("q", "n2", 8, plan=range(8))]
    assert findings([full], pods[:1]) == [
        (
            (
                "1 node cordoned or NotReady, with 1 GPU that would be free and is not counted: "
                "n1 (cordoned)"
            ),
            step,
        )
    ]
    assert findings([full, cordoned], pods[1:]) == [
        (
            (
                "2 nodes cordoned or NotReady, with 8 GPUs that would be free and are not counted: "
                "n1 (cordoned), n2 (cordoned)"
            ),
            step,
        )
    ]


def test_pods_with_claims():
    """Their GPUs are in neither list."""
    spec = {"resourceClaims": [{"name": "gpu"}]}
    assert findings([node("n1")], [pod("p", "n1", 0, spec=spec)]) == [
        (
            "GPUs by DRA are not seen, and may count as free; 1 pod with resource claims: ml/p",
            "list the claims: kubectl get resourceclaims -A",
        )
    ]


def test_nodes_with_gpus_in_mig_mode():
    """Which ones these are the reporter knows if it is set so."""
    one = node("n1", allocatable={RESOURCE: 7, "nvidia.com/mig-1g.5gb": 7})
    one["status"]["capacity"] = one["status"]["allocatable"]
    assert findings([one]) == [
        (
            (
                "1 node with free GPUs in MIG mode, not known which, so that the figures take the "
                "least favourable ones: n1"
            ),
            "run the reporter there with MIG_STRATEGY=mixed",
        )
    ]
