"""Who has which GPUs: by whom it is believed, and what is named as unknown."""

from dataclasses import replace

import pytest

from tests.kubectl_lists import RESOURCE, held_by, kube_list, named, node, pod
from topology.annotations import DeviceHold, DevicesReport, MissingDevices, UnhealthyDevice
from topology.audit.cluster import ProblemKind, UnjudgedReason, hold_node, read_cluster
from topology.model import Gpu, encode_topology, names
from topology.recordings import load_recording

ALL = 0xFF


def hold(one, *pods):
    """The holdings of a node and its pods, given as JSON."""
    cluster = read_cluster(kube_list(one), kube_list(*pods))
    ended = frozenset(found.uid for found in cluster.pods if found.has_ended)
    running = [found for found in cluster.pods if not found.has_ended]
    return hold_node(cluster.nodes[0], running, ended)


def sets(holdings):
    """The sets that are known: pod, container, mask and who says so."""
    return [(one.pod.name, one.container, one.mask, one.source) for one in holdings.sets]


def left(holdings):
    """What cannot be judged."""
    return [(one.pod.name, one.container, one.n_gpus, one.reason) for one in holdings.unjudged]


def problems(holdings):
    """Why the node is not covered."""
    return [(one.kind, one.text) for one in holdings.problems]


def reported(*holds, **fields):
    """A node whose plugin reports holds."""
    return node("n1", report=DevicesReport(1, holds=holds, **fields))


@pytest.mark.parametrize(
    ("said", "source", "mask"),
    [
        pytest.param({"plan": (0, 1)}, "plan", 0b11, id="the plan alone"),
        pytest.param(
            {"plan": (0, 1), "allocated": (2, 3)}, "allocated", 0b1100, id="then allocated"
        ),
        pytest.param(
            {"plan": (0, 1), "allocated": (2, 3), "status": (4, 5)},
            "status",
            0b110000,
            id="then the status",
        ),
    ],
)
def test_who_is_believed_without_a_report(said, source, mask):
    """The kubelet knows better than what was planned."""
    found = hold(node("n1"), pod("p", "n1", **said))
    assert sets(found) == [("p", "main", mask, source)]
    assert found.free == ALL & ~mask


def test_the_plugins_report_is_believed_first():
    """It is read from the kubelet's PodResources."""
    found = hold(reported(held_by("p", "n1", (6, 7))), pod("p", "n1", plan=(0, 1), status=(2, 3)))
    assert sets(found) == [("p", "main", 0b11000000, "report")]


def test_each_container_has_its_own_source():
    """The report names only those whose devices are not as planned."""
    found = hold(
        reported(held_by("p", "n1", (6, 7), container="side")),
        pod("p", "n1", {"main": 2, "side": 2}, plan=(0, 1)),
    )
    assert sets(found) == [("p", "side", 0b11000000, "report"), ("p", "main", 0b11, "plan")]


@pytest.mark.parametrize(
    "annotation",
    [
        pytest.param({names.PLAN: "{}"}, id="a plan that cannot be read"),
        pytest.param(
            pod("p", "n2", plan=(0, 1))["metadata"]["annotations"], id="a plan of another node"
        ),
    ],
)
def test_gpus_known_by_number_leave_the_node_unknown(annotation):
    """Nothing is guessed: which GPUs are free is then not known either."""
    found = hold(node("n1"), pod("p", "n1", annotations=annotation), pod("q", "n1", plan=(2, 3)))
    assert left(found) == [("p", "main", 2, UnjudgedReason.BY_NUMBER)]
    assert sets(found) == [("q", "main", 0b1100, "plan")]
    assert found.free is None
    said = "GPUs of 1 container are known by number only: which are free is not known"
    assert problems(found) == [(ProblemKind.BY_NUMBER, said)]


def test_several_containers_by_number_are_counted():
    """One sentence for the node."""
    found = hold(node("n1"), pod("p", "n1"), pod("q", "n1"))
    said = "GPUs of 2 containers are known by number only: which are free is not known"
    assert problems(found) == [(ProblemKind.BY_NUMBER, said)]


def test_fewer_devices_than_requested_are_not_all():
    """A status that is not complete yet."""
    found = hold(node("n1"), pod("p", "n1", 4, status=(0, 1)))
    assert left(found) == [("p", "main", 4, UnjudgedReason.BY_NUMBER)]
    assert found.free is None


def test_pods_that_have_ended_have_nothing():
    """Neither by their annotations nor by a report that lags."""
    found = hold(reported(held_by("p", "n1", (0, 1))), pod("p", "n1", phase="Succeeded"))
    assert sets(found) == []
    assert found.free == ALL


def test_pods_that_are_not_listed_keep_their_gpus():
    """Such as a list of one namespace."""
    found = hold(
        reported(held_by("gone", "n1", (0, 1)), held_by("p", "n1", (1, 2))), pod("p", "n1")
    )
    assert sets(found) == [("p", "main", 0b110, "report")]
    assert found.n_unlisted == 1
    assert found.free == ALL & ~0b111


def test_unhealthy_gpus_are_not_free():
    """Nobody would be given them."""
    report = DevicesReport(1, (UnhealthyDevice("GPU-n1-7", "XID 79"), UnhealthyDevice("x", "y")))
    one = node("n1", report=report, allocatable={RESOURCE: 7})
    found = hold(one)
    assert found.free == ALL & ~0b10000000
    assert found.unhealthy == 0b10000000


def test_a_container_that_runs_without_gpus_has_none():
    """The plugin says so, and what is free is known all the same."""
    lacking = MissingDevices("uid-p", "ml", "p", "main", RESOURCE)
    found = hold(reported(missing=(lacking,)), pod("p", "n1"))
    assert left(found) == [("p", "main", 2, UnjudgedReason.RUNS_WITHOUT)]
    assert found.free == ALL


@pytest.mark.parametrize(
    ("first", "second", "winner"),
    [
        pytest.param({"plan": (0, 1)}, {"status": (1, 2)}, "q", id="more trusted"),
        pytest.param({"plan": (0, 1)}, {"plan": (1, 2)}, "p", id="first in the list"),
    ],
)
def test_no_gpu_has_two_owners(first, second, winner):
    """One of the two is wrong, so its GPUs are unknown and with them the node's free ones."""
    found = hold(node("n1"), pod("p", "n1", **first), pod("q", "n1", **second))
    assert [one.pod.name for one in found.sets] == [winner]
    assert [one.reason for one in found.unjudged] == [UnjudgedReason.TWO_OWNERS]
    assert found.free is None


def test_two_containers_of_a_pod_share_no_gpu():
    """Only init containers hand theirs on."""
    holds = (held_by("p", "n1", (0, 1)), held_by("p", "n1", (1, 2), container="b"))
    found = hold(reported(*holds), pod("p", "n1", {"main": 2, "b": 2}))
    assert ("p", "b", 2, UnjudgedReason.TWO_OWNERS) in left(found)
    assert found.free is None


def init(count):
    """An init container with GPUs."""
    return [{"name": "init", "resources": {"limits": {RESOURCE: count}}}]


def test_init_containers_hand_their_gpus_on_and_are_not_judged():
    """They have ended while the pod runs."""
    holds = (held_by("p", "n1", (0, 1, 2), container="init"), held_by("p", "n1", (0, 1)))
    found = hold(reported(*holds), pod("p", "n1", init=init(3)))
    assert sets(found) == [("p", "main", 0b11, "report")]
    assert found.located == 0b111
    assert found.free == ALL & ~0b111


def test_what_an_init_container_had_is_still_the_pods():
    """The kubelet frees it when the pod ends; which ones these are is not known."""
    found = hold(reported(held_by("p", "n1", (0, 1))), pod("p", "n1", init=init(4)))
    assert sets(found) == [("p", "main", 0b11, "report")]
    assert left(found) == [("p", "init", 2, UnjudgedReason.BY_NUMBER)]
    assert found.free is None


def test_an_init_container_without_more_needs_no_source():
    """The app has what it had."""
    found = hold(reported(held_by("p", "n1", (0, 1))), pod("p", "n1", init=init(2)))
    assert left(found) == []


def test_a_lacking_pod_has_no_more_than_is_named():
    """Of two containers one runs without."""
    lacking = MissingDevices("uid-p", "ml", "p", "b", RESOURCE)
    one = reported(held_by("p", "n1", (0, 1)), missing=(lacking,))
    found = hold(one, pod("p", "n1", {"main": 2, "b": 2}))
    assert sets(found) == [("p", "main", 0b11, "report")]
    assert found.free == ALL & ~0b11


@pytest.mark.parametrize(
    ("ids", "free"),
    [
        pytest.param(("GPU-n1-0::0", "GPU-n1-1::3"), ALL & ~0b11, id="replicas of shared GPUs"),
        pytest.param(("GPU-n1-0", "MIG-x"), ALL & ~0b1, id="a partition that is not named"),
    ],
)
def test_devices_that_are_no_whole_gpus_are_not_judged(ids, free):
    """A replica takes its GPU all the same."""
    held = DeviceHold("uid-p", "ml", "p", "main", RESOURCE, ids)
    found = hold(reported(held), pod("p", "n1"))
    assert left(found) == [("p", "main", 2, UnjudgedReason.NOT_WHOLE)]
    assert found.free == free


def test_partitions_of_the_topology_are_not_judged():
    """Two slices of one GPU reduce nothing over links."""
    topology = load_recording("4x-l40s")
    gpus = (*topology.gpus[:3], replace(topology.gpus[3], parent="GPU-p"))
    found = hold(node("n1", replace(topology, gpus=gpus)), pod("p", "n1", plan=(2, 3)))
    assert left(found) == [("p", "main", 2, UnjudgedReason.NOT_WHOLE)]
    assert found.free == 0b11


def test_other_resources_are_not_judged_and_take_no_gpu_that_is_known():
    """MIG profiles beside whole GPUs, under the mixed strategy."""
    other = pod("p", "n1", 3, resource="nvidia.com/mig-1g.5gb")
    found = hold(node("n1"), other)
    assert left(found) == [("p", "main", 3, UnjudgedReason.NOT_WHOLE)]
    assert found.free == ALL


def unnamed():
    """A topology whose GPUs have no uuid."""
    return encode_topology(replace(load_recording("4x-l40s"), gpus=(Gpu(),) * 4))


@pytest.mark.parametrize(
    ("annotations", "kind", "problem"),
    [
        pytest.param(
            {},
            ProblemKind.NO_TOPOLOGY,
            "it has no annotation coterie.gpu/topology",
            id="none",
        ),
        pytest.param(
            {names.TOPOLOGY: '{"v":"2.0"}'},
            ProblemKind.UNREADABLE,
            "topology text: v is '2.0', expected major version 1",
            id="of another version",
        ),
        pytest.param(
            {names.TOPOLOGY: unnamed()},
            ProblemKind.UNREADABLE,
            "topology: GPUs have no uuid, expected one for each",
            id="without uuids",
        ),
        pytest.param(
            {
                names.TOPOLOGY: encode_topology(named(load_recording("4x-l40s"), "n1")),
                names.DEVICES: "{}",
            },
            ProblemKind.UNREADABLE,
            "devices text: the text has no v, expected one",
            id="a report that cannot be read",
        ),
    ],
)
def test_nodes_without_a_usable_topology_are_named(annotations, kind, problem):
    """Their pods are counted; one GPU has nothing to reduce."""
    one = node("n1", None, annotations=annotations)
    found = hold(one, pod("p", "n1", 4), pod("q", "n1", 1))
    assert problems(found) == [(kind, problem)]
    assert left(found) == [("p", "main", 4, UnjudgedReason.NO_TOPOLOGY)]
    assert (found.n_gpus, found.free, found.topology) == (8, None, None)


@pytest.mark.parametrize(("offered", "kind"), [(7, ProblemKind.FEWER), (9, ProblemKind.SHARED)])
def test_another_number_of_gpus_leaves_the_free_ones_unknown(offered, kind):
    """A device plugin that holds a GPU for bad, or shares GPUs, and does not say which."""
    found = hold(node("n1", allocatable={RESOURCE: offered}), pod("p", "n1", plan=(0, 1)))
    assert found.free is None
    said = (
        f"the kubelet offers {offered} of nvidia.com/gpu, and the topology shows 8 healthy GPUs: "
        "which are free is not known"
    )
    assert problems(found) == [(kind, said)]
    assert sets(found) == [("p", "main", 0b11, "plan")]


def test_devices_of_another_plugin_may_be_any_gpus():
    """Such as shares by a scheduler of its own: which GPUs are free is then not known."""
    other = pod("p", "n1", 100, resource="koordinator.sh/gpu")
    found = hold(node("n1"), other, pod("q", "n1", plan=(0, 1)))
    assert left(found) == [("p", "main", 100, UnjudgedReason.BY_NUMBER)]
    assert found.free is None
