"""The kubelet's calls, from the pod of a call to what the container gets."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from plugin.allocation import Allocation, Identified, NodeState
from plugin.allocation.preferred_allocation import AllocationBasis, RefusalReason
from plugin.allocator import (
    AllocationAnswer,
    AllocatorTools,
    Identification,
    IdentifiedBy,
    ResourceAllocator,
)
from plugin.container import NoAccess
from plugin.deviceplugin import CallRefused, DevicePluginMethod
from plugin.kubelet import AdmissionGate, KubeletRead, KubeletSnapshot, StillHeld
from tests.unit.plugin.node_states import (
    prepared,
    simulated_served,
    snapshot,
    state,
    unaligned,
)
from tests.unit.plugin.node_values import GPU, NODE, app, gpus, holding, node_pod
from tests.virtual_time import run_at_once
from topology.annotations import TopologyManagerPolicy, TopologyManagerScope
from topology.topology_manager import TopologyManager

STOCK = simulated_served()
IDS = tuple(device.id for device in STOCK.inventory.resources[0].devices)
PAIR = node_pod("pair", app("main", 2), plan={"main": (IDS[0], IDS[7])})
SILENT = KubeletSnapshot(None, None, error="the kubelet is silent")
SOON_S = 10.0
LOOK_S = 0.25
"""How long a read of the kubelet takes."""


@dataclass
class Node:
    """A kubelet with one snapshot after another, and an allocator that reads it.

    Its Topology Manager has policy `none`.
    """

    snapshots: list[KubeletSnapshot]
    state: NodeState = field(default_factory=lambda: unaligned(prepared(NodeState(NODE, STOCK))))
    resource: str = GPU
    n_snapshots: int = 0
    gate: AdmissionGate = field(default_factory=AdmissionGate)
    device_flags: list[bool | None] = field(default_factory=list)
    ways: list[IdentifiedBy] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    n_allocated: int = 0
    kept: frozenset[str] = frozenset()
    """Devices that the kubelet counts as those of whoever had them before."""
    unknown: frozenset[str] = frozenset()
    """Devices about which it gives no answer in time."""

    async def snapshot(self, *, with_devices=None, until_s=None):
        """The next look, after some time."""
        assert until_s is not None
        self.n_snapshots += 1
        self.device_flags.append(with_devices)
        assert self.gate.is_busy
        await asyncio.sleep(LOOK_S)
        found = self.snapshots.pop(0)
        return found if with_devices else replace(found, devices=None)

    async def still_held(self, holdings, *, until_s):
        """Those of `kept`, and of `unknown`."""
        assert until_s > asyncio.get_running_loop().time()
        return StillHeld(
            tuple(one for one in holdings if self.kept.issuperset(one.ids)),
            tuple(one for one in holdings if self.unknown.issuperset(one.ids)),
        )

    def emit(self, event):
        """Keep it, by kind; only a read of the kubelet takes time."""
        match event:
            case Identification(how, duration_s):
                assert duration_s == (0.0 if how is IdentifiedBy.KNOWN else LOOK_S)
                self.ways.append(how)
            case KubeletRead(error):
                self.errors.append(error)
            case AllocationAnswer():
                self.answers.append(event)

    def allocated(self):
        """Count it."""
        self.n_allocated += 1

    @property
    def allocator(self):
        """What is tried."""
        kubelet: Any = self
        tools = AllocatorTools(self.state, kubelet, emit=self.emit, on_allocated=self.allocated)
        return ResourceAllocator(self.resource, tools)

    def preferred(self, available=IDS, must_include=(), size=2) -> Any:
        """GetPreferredAllocation."""

        async def go():
            until_s = asyncio.get_running_loop().time() + SOON_S
            return await self.allocator.preferred(
                tuple(available), must_include=must_include, size=size, until_s=until_s
            )

        return run_at_once(go())

    def allocate(self, *containers) -> Any:
        """Allocate."""

        async def go():
            until_s = asyncio.get_running_loop().time() + SOON_S
            return await self.allocator.allocate(containers, until_s=until_s)

        return run_at_once(go())


def visible(answer) -> list[str]:
    """What each container sees."""
    return [one.env["NVIDIA_VISIBLE_DEVICES"] for one in answer]


# --- The pod of a call -----------------------------------------------------------------------


def test_a_pod_that_has_just_come_is_found_by_a_look():
    """And gets its plan."""
    node = Node([snapshot(PAIR)])
    assert node.preferred() == (IDS[0], IDS[7])
    assert (node.ways, node.errors) == ([IdentifiedBy.LOOKUP], [""])
    (answer,) = node.answers
    assert answer.method is DevicePluginMethod.PREFERRED
    assert (answer.request.size, answer.requester.pod) == (2, PAIR)
    assert answer.result.basis is AllocationBasis.PLANNED


def test_the_next_container_of_a_pod_is_known_without_a_look():
    """The kubelet waits for each: what is certain is not read again."""
    plan = {"x": IDS[:2], "y": IDS[2:5]}
    node = Node([snapshot(node_pod("a", app("x", 2), app("y", 3), plan=plan))])
    assert node.preferred() == IDS[:2]
    node.allocate(IDS[:2])
    assert node.preferred(IDS[2:], size=3) == IDS[2:5]
    assert node.ways == [IdentifiedBy.LOOKUP, IdentifiedBy.KNOWN]
    assert node.n_snapshots == 1


def test_one_of_several_gets_one_of_their_plans():
    """A swap of equal plans serves both."""
    other = node_pod("twin", app("main", 2), plan={"main": (IDS[1], IDS[6])})
    node = Node([snapshot(PAIR, other)])
    assert set(node.preferred()) in ({IDS[0], IDS[7]}, {IDS[1], IDS[6]})
    assert node.ways == [IdentifiedBy.AMBIGUOUS]
    assert node.answers[0].result.basis is AllocationBasis.SWAPPED


def test_an_unknown_pod_gets_the_set_that_harms_other_plans_least():
    """A pod that is not listed must start all the same."""
    node = Node([snapshot()])
    found = node.preferred()
    assert isinstance(found, tuple)
    assert len(found) == 2
    assert node.ways == [IdentifiedBy.UNMATCHED]
    assert node.answers[0].result.basis is AllocationBasis.LEAST_HARM


def test_a_kubelet_that_is_silent_fails_no_pod():
    """It is logged, and the pod gets the set that harms other plans least."""
    node = Node([SILENT])
    assert isinstance(node.preferred(), tuple)
    assert (node.ways, node.errors) == ([IdentifiedBy.UNREACHABLE], [SILENT.error])
    assert node.answers[0].requester.reason == SILENT.error


def test_half_a_look_is_enough_to_find_the_plan():
    """The failure is logged."""
    node = Node([replace(snapshot(PAIR), devices=None, error="no PodResources")])
    assert node.preferred() == (IDS[0], IDS[7])
    assert node.errors == ["no PodResources"]


# --- GetPreferredAllocation ------------------------------------------------------------------


def test_what_cannot_be_is_refused_and_ends_the_pod():
    """It is passed over from then on: its plan is free for others."""
    node = Node([snapshot(PAIR)])
    node.state.set_unhealthy(dict.fromkeys(IDS[1:], "lost"))
    found = node.preferred()
    assert isinstance(found, CallRefused)
    assert found.reason.startswith(RefusalReason.TOO_FEW.value)
    assert "requested 2, available 1" in found.reason
    assert node.answers[0].result == found
    assert node.state.view(is_fresh=True).refused == {"uid-pair"}
    assert node.state.expected(GPU, IDS[:2]) is None


# --- Allocate --------------------------------------------------------------------------------


def test_what_was_answered_is_given_to_the_same_container():
    """Without another look, in whatever order the kubelet names the devices."""
    node = Node([snapshot(PAIR)])
    node.preferred()
    assert visible(node.allocate((IDS[7], IDS[0]))) == [f"{IDS[0]},{IDS[7]}"]
    assert (node.n_snapshots, node.ways) == (1, [IdentifiedBy.LOOKUP])
    answer = node.answers[-1]
    assert answer.method is DevicePluginMethod.ALLOCATE
    assert (answer.request.must_include, answer.requester.pod) == ({IDS[0], IDS[7]}, PAIR)
    assert answer.result == Allocation((IDS[0], IDS[7]), AllocationBasis.PLANNED)
    assert node.state.view(is_fresh=True).grants == (holding(PAIR, "main", IDS[0], IDS[7]),)


def test_an_allocate_without_a_question_is_identified_itself():
    """The kubelet does not call where it takes all, or its Topology Manager decides."""
    node = Node([snapshot(PAIR)])
    assert visible(node.allocate((IDS[0], IDS[7]))) == [f"{IDS[0]},{IDS[7]}"]
    assert node.ways == [IdentifiedBy.LOOKUP]
    assert isinstance(node.answers[0].requester, Identified)


def test_other_devices_than_answered_are_checked_again():
    """The kubelet may do otherwise; a pod that requires something starts on no less."""
    required = {"coterie.gpu/policy": "required", "coterie.gpu/affinity": "nvlink"}
    pod = node_pod("strict", app("main", 2), plan={"main": IDS[:2]}, annotations=required)
    node = Node([snapshot(pod), snapshot(pod)])
    node.preferred()
    (refused,) = [node.allocate((IDS[0], IDS[5]))]
    assert isinstance(refused, CallRefused)
    assert refused.reason.startswith("no set of devices meets the pod's requirements")
    assert node.answers[-1].result == refused
    assert node.state.view(is_fresh=True).refused == {"uid-strict"}
    assert node.state.view(is_fresh=True).grants == ()


def test_a_device_that_went_bad_is_not_given():
    """Between the question and the Allocate: the pod would start on it."""
    node = Node([snapshot(PAIR)])
    node.preferred()
    node.state.set_unhealthy({IDS[7]: "XID 79"})
    refused = node.allocate((IDS[0], IDS[7]))
    assert isinstance(refused, CallRefused)
    assert IDS[7] in refused.reason


def test_containers_are_answered_in_their_order():
    """The protocol allows several in one call."""
    node = Node([snapshot(), snapshot()])
    assert visible(node.allocate((IDS[3],), (IDS[1],))) == [IDS[3], IDS[1]]
    assert len(node.state.view(is_fresh=True).grants) == 2


def test_one_container_that_cannot_be_served_refuses_the_call():
    """The kubelet fails the pod as a whole."""
    node = Node([snapshot(), snapshot()])
    node.state.set_unhealthy({IDS[1]: "XID 79"})
    assert isinstance(node.allocate((IDS[3],), (IDS[1],), (IDS[2],)), CallRefused)
    assert node.n_snapshots == 2


def test_each_container_that_was_given_devices_triggers_a_report():
    """A refusal does not: no pod holds more than before."""
    node = Node([snapshot(), snapshot(), snapshot()])
    node.state.set_unhealthy({IDS[1]: "XID 79"})
    assert isinstance(node.allocate((IDS[1],)), CallRefused)
    assert node.n_allocated == 0
    node.allocate((IDS[3],), (IDS[2],))
    assert node.n_allocated == 2


def test_a_device_without_access_is_refused():
    """A container that cannot open its GPU fails later and says less."""
    known = state(gpus("GPU-0"))
    known.grant = lambda devices: NoAccess(f"{devices[0].id} has no known device node")
    pod = node_pod("a", app("main", 1))
    node = Node([snapshot(pod)], known)
    refused = node.allocate(("GPU-0",))
    assert isinstance(refused, CallRefused)
    assert "GPU-0" in refused.reason
    assert node.answers[-1].result == refused
    assert known.view(is_fresh=True).refused == {"uid-a"}
    assert known.view(is_fresh=True).grants == ()


def test_each_allocator_serves_its_own_resource():
    """Ids of another resource are unknown to it."""
    known = state(gpus("GPU-0"), gpus("GPU-1", resource="nvidia.com/gpu.shared"))
    node = Node([snapshot(), snapshot()], known, resource="nvidia.com/gpu.shared")
    assert visible(node.allocate(("GPU-1",))) == ["GPU-1"]
    assert isinstance(node.allocate(("GPU-0",)), CallRefused)


# --- What the plugin must not request of the kubelet during an allocation ------------------------


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        pytest.param(TopologyManagerPolicy.NONE, [True, False], id="nothing is reserved yet"),
        pytest.param(TopologyManagerPolicy.RESTRICTED, [False, False], id="aligned devices may be"),
    ],
)
def test_pod_resources_is_never_listed_while_devices_are_reserved(policy, expected):
    """The kubelet would forget the reservation where a pod has just ended, and give it twice."""
    node = Node([snapshot(PAIR), snapshot(PAIR)])
    node.state.topology_manager = TopologyManager(policy, TopologyManagerScope.CONTAINER)
    node.preferred()
    node.allocate((IDS[2], IDS[3]))
    assert node.device_flags == expected


def test_what_a_living_pod_has_is_not_given_once_more():
    """Another client may have listed PodResources at the wrong moment."""
    holder = node_pod("holder", app("main", 1), phase="Running", is_started=True)
    held = [holding(holder, "main", IDS[0], has_uid=False)]
    node = Node([snapshot(PAIR, holder, holdings=held)])
    assert IDS[0] not in node.preferred()


HOLDER = node_pod("holder", app("main", 1), phase="Running", is_started=True)


def test_what_the_kubelet_gives_away_twice_is_refused():
    """It decides alone where devices are aligned, and says at the same time who has them."""
    noted = [holding(HOLDER, "main", IDS[0])]
    node = Node([snapshot(HOLDER, PAIR, recorded=noted)], kept=frozenset({IDS[0]}))
    refused = node.allocate((IDS[0], IDS[7]))
    assert refused == CallRefused(
        "the kubelet allocated devices twice (Kubernetes 137534): "
        f"{IDS[0]} belongs to container main of default/holder"
    )
    assert node.answers[-1].result == refused
    assert node.state.view(is_fresh=True).refused == {"uid-pair"}
    assert [one.ids for one in node.state.holdings] == [(IDS[0],)]


def test_what_another_pod_had_is_refused_where_the_kubelet_does_not_answer_in_time():
    """It may still have it: a pod that fails is made again, a GPU given twice is not noticed."""
    noted = [holding(HOLDER, "main", IDS[0])]
    node = Node([snapshot(HOLDER, PAIR, recorded=noted)], unknown=frozenset({IDS[0]}))
    assert node.allocate((IDS[0], IDS[7])) == CallRefused(
        "the kubelet did not answer in time whether others still have devices: "
        f"{IDS[0]} belongs to container main of default/holder"
    )


def test_what_came_back_is_given_again():
    """The state is behind: the end of the pod was not reported."""
    node = Node([snapshot(HOLDER, PAIR, recorded=[holding(HOLDER, "main", IDS[0])])])
    assert visible(node.allocate((IDS[0], IDS[7]))) == [f"{IDS[0]},{IDS[7]}"]
