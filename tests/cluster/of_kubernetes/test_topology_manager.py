"""The Topology Manager of a real kubelet, and what Coterie believes of it.

`topology.topology_manager.admission` says what a kubelet leaves to choose and what it refuses; it
was read from the source. Here it is compared, call by call, with what the real one does and what
it requests from a plugin, for every policy and scope, on random pods and random free devices of a
machine with two NUMA nodes.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from tests.cluster.node.real_pods import is_failed, is_running, real_container, real_pod
from tests.cluster.node.stub_plugin import StubPlugin, holders
from topology.annotations import TopologyManagerPolicy, TopologyManagerScope
from topology.select import ContainerRequest, ContainerRole, Unfit, pod_size
from topology.topology_manager import Kubelet, TopologyManager
from topology.topology_manager.admission import Admission, begin_admission
from topology.topology_manager.hints import NumaDevices

pytestmark = [pytest.mark.cluster, pytest.mark.kubelet]

IDS = tuple(f"GPU-{number}" for number in range(8))
# Neighbours on different NUMA nodes, so that nothing is right by the order of ids alone.
NUMA = {one: place % 2 for place, one in enumerate(IDS)}
DEVICES = NumaDevices(((0, 0b01010101), (1, 0b10101010)))
ALL = 0xFF
N_PODS = 12
INIT, SIDECAR, APP = ContainerRole.INIT, ContainerRole.SIDECAR, ContainerRole.APP
LAYOUTS = (
    *(((size, APP),) for size in (1, 1, 2, 2, 3, 4, 4, 5, 6, 8)),
    ((2, APP), (2, APP)),
    ((3, APP), (3, APP)),
    ((4, APP), (4, APP)),
    ((1, APP), (4, APP)),
    ((2, APP), (1, APP), (2, APP)),
    ((2, INIT), (4, APP)),
    ((4, INIT), (4, APP)),
    ((4, INIT), (2, APP)),
    ((3, INIT), (2, APP), (3, APP)),
    ((1, SIDECAR), (3, APP)),
    ((1, SIDECAR), (2, INIT), (4, APP)),
)
CONFIGS = [
    (policy, scope)
    for policy in TopologyManagerPolicy
    for scope in TopologyManagerScope
    if (policy, scope) != (TopologyManagerPolicy.NONE, TopologyManagerScope.POD)
]


@dataclass(frozen=True, slots=True)
class Question:
    """A GetPreferredAllocation request for one container."""

    available: int
    must: int
    size: int


def settle(pods):
    """Wait until a kubelet that has just started knows which pods there are.

    Those of its first batch are admitted as if all that its checkpoint names were still taken, by
    pods that are long gone too (devicemanager/manager.go, UpdateAllocatedDevices).
    """
    pods.create(real_pod("settles", real_container("main"), nodeName="machine"))
    pods.until("settles", is_running)
    pods.delete("settles")


def mask(ids):
    """Ids as a mask."""
    return sum(1 << IDS.index(one) for one in ids)


def ids(devices):
    """A mask as ids."""
    return [one for place, one in enumerate(IDS) if devices >> place & 1]


class Believed:
    """A kubelet as Coterie believes it to be."""

    def __init__(self, policy, scope):
        self._policy = policy
        self._manager = TopologyManager(policy, scope)

    def begin(self, free, requests):
        """The kubelet begins with a pod, or refuses it."""
        if self._policy is TopologyManagerPolicy.NONE:
            return Admission(self._manager, NumaDevices(()), free)
        return begin_admission(Kubelet(self._manager, free), DEVICES, requests)

    def question(self, admission, request):
        """Its next step for a container: a request to the plugin, a refusal, or its own choice."""
        room = admission.room(request.size)
        if isinstance(room, Unfit):
            return room
        is_handed_on = admission.reusable.bit_count() >= request.size
        if is_handed_on or room.must == room.allowed:
            return room
        return Question(room.allowed, room.must, request.size)


def manifest(name, layout):
    """A pod of that layout, and the same as the core sees it."""
    inits, apps, requests = [], [], []
    for number, (size, role) in enumerate(layout):
        own = f"{role.value}-{number}"
        requests.append(ContainerRequest(own, size, role))
        if role is INIT:
            inits.append(real_container(own, size, runs_s=0.05))
        elif role is SIDECAR:
            inits.append(real_container(own, size, restartPolicy="Always"))
        else:
            apps.append(real_container(own, size))
    return real_pod(name, *apps, inits=inits, nodeName="machine"), tuple(requests)


def replay(believed, free, requests, calls):
    """Go through the pod's containers as the kubelet did; each difference is an error.

    `calls` are the calls of the plugin; that its answers were followed is checked too. Returns
    whether the pod should be admitted.
    """
    admission = believed.begin(free, requests)
    for request in requests:
        if isinstance(admission, Unfit):
            break
        expected = believed.question(admission, request)
        if isinstance(expected, Unfit):
            admission = expected
            break
        if isinstance(expected, Question):
            preferred, given = calls.pop(0), calls.pop(0)
            found = Question(
                mask(preferred.available), mask(preferred.must_include), preferred.size
            )
            assert found == expected, request
        else:
            given = calls.pop(0)
            assert expected.holds(mask(given.ids)), (request, expected, given)
        assert given.verb == "Allocate"
        assert len(given.ids) == request.size
        admission = admission.after(request.role, mask(given.ids))
    assert calls == []
    return not isinstance(admission, Unfit)


@pytest.mark.parametrize(
    ("policy", "scope"), [pytest.param(*one, id="-".join(o.value for o in one)) for one in CONFIGS]
)
def test_the_kubelet_calls_and_refuses_as_the_core_predicts(node, pods, policy, scope):
    """A plan that the kubelet would not follow is worse than none."""
    chance = random.Random(f"{policy.value} {scope.value}")  # noqa: S311 - repeatable
    node.restart_kubelet(topologyManagerPolicy=policy.value, topologyManagerScope=scope.value)
    settle(pods)
    believed = Believed(policy, scope)

    def prefer(call):
        others = sorted(set(call.available) - set(call.must_include))
        return [*call.must_include, *chance.sample(others, call.size - len(call.must_include))]

    outcomes = {"ran": 0, "refused": 0, "preferred": 0, "without a call": 0}
    with StubPlugin(node, NUMA, prefer=prefer) as plugin:
        plugin.until_listed()
        held = 0
        running: list[str] = []
        for number in range(N_PODS):
            ill = mask(chance.sample(IDS, chance.choice((0, 0, 1, 2, 3))))
            plugin.set_ill(*ids(ill))
            plugin.until_listed()
            free = ALL & ~held & ~ill
            fitting = [one for one in LAYOUTS if pod_size(manifest("", one)[1]) <= free.bit_count()]
            if not fitting:
                pods.delete(*running)
                held, running = 0, []
                continue
            name = f"pod-{number}"
            pod, requests = manifest(name, chance.choice(fitting))
            plugin.calls.clear()
            pods.create(pod)
            status = pods.until(name, lambda one: is_running(one) or is_failed(one))["status"]
            calls = list(plugin.calls)
            outcomes["preferred"] += len(plugin.calls_of("GetPreferredAllocation"))
            outcomes["without a call"] += len(plugin.calls_of("Allocate"))
            is_admitted = replay(believed, free, requests, calls)
            assert is_admitted == (status["phase"] != "Failed"), status
            if not is_admitted:
                assert status["reason"] == "TopologyAffinityError", status
                outcomes["refused"] += 1
                pods.delete(name)
                continue
            outcomes["ran"] += 1
            running.append(name)
            if chance.random() < 0.6:
                pods.delete(running.pop(chance.randrange(len(running))))
            held = sum(mask(had) for had in holders(node).values())
    outcomes["without a call"] -= outcomes["preferred"]
    print(f"{policy.value}, {scope.value}: {outcomes}")  # noqa: T201 - figures
    assert outcomes["ran"] > 0
