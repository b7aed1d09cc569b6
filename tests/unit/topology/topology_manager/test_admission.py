"""Sets that the kubelet will really give, against a literal transcription of the kubelet."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from tests.device_manager import NotAdmitted
from tests.topology_manager import Container, Kubelet, pod_limits
from topology.annotations import (
    DEFAULT_POLICY,
    Affinity,
    PlacementPolicy,
    Strength,
    TopologyManagerPolicy,
    TopologyManagerScope,
)
from topology.recordings import load_recording
from topology.select import (
    ContainerRequest,
    ContainerRole,
    PodFit,
    Selected,
    Unfit,
    UnfitReason,
    build_machine,
    fit_pod,
    pod_size,
    select_set,
)
from topology.select.selection import remainder_cost
from topology.topology_manager import Kubelet as KubeletState
from topology.topology_manager import TopologyManager, fit_admitted
from topology.value import gpus_of, mask_of

if TYPE_CHECKING:
    from topology.model import NodeTopology
    from topology.select import Machine

INIT, SIDECAR, APP = ContainerRole.INIT, ContainerRole.SIDECAR, ContainerRole.APP
SCOPES = tuple(TopologyManagerScope)
POLICIES = tuple(one for one in TopologyManagerPolicy if one is not TopologyManagerPolicy.NONE)
BEST_EFFORT, RESTRICTED, SINGLE = POLICIES
CONTAINER, POD = SCOPES
REFUSED = {UnfitReason.ALIGNMENT_NEVER, UnfitReason.ALIGNMENT_TAKEN}

NO_NVLINK = UnfitReason.AFFINITY_TAKEN.value
DGX1 = load_recording("dgx-1-v100")
V100 = build_machine(DGX1)


def _pod(*containers: tuple[int, ContainerRole] | int) -> tuple[ContainerRequest, ...]:
    pairs = [(one, APP) if isinstance(one, int) else one for one in containers]
    return tuple(ContainerRequest(f"c{i}", size, role) for i, (size, role) in enumerate(pairs))


PODS = {
    "one app": [_pod(size) for size in range(1, 9)],
    "two apps": [_pod(1, 1), _pod(2, 2), _pod(1, 3), _pod(3, 2), _pod(4, 4), _pod(2, 4)],
    "three apps": [_pod(3, 3, 2), _pod(2, 2, 2), _pod(1, 2, 4)],
    "init and app": [_pod((a, INIT), b) for a, b in ((1, 1), (4, 2), (2, 4), (5, 2), (2, 5))],
    "init and two apps": [_pod((3, INIT), 2, 2), _pod((4, INIT), 2, 2), _pod((6, INIT), 1, 2)],
    "sidecar between": [
        _pod((4, INIT), (2, SIDECAR), (2, INIT), 2),
        _pod((1, SIDECAR), (3, INIT), 4),
        _pod((2, SIDECAR), (2, SIDECAR), 1),
    ],
}


@cache
def _machine(numa: tuple[int | None, ...]) -> tuple[NodeTopology, Machine]:
    """A machine with these NUMA nodes; on 16 GPUs every pair is linked alike."""
    topology = DGX1 if len(numa) == 8 else load_recording("dgx-2")
    gpus = tuple(
        replace(gpu, numa_node=node) for gpu, node in zip(topology.gpus, numa, strict=True)
    )
    topology = replace(topology, gpus=gpus)
    return topology, build_machine(topology)


def _kubelet(
    numa: tuple[int | None, ...], policy: TopologyManagerPolicy, scope: TopologyManagerScope, free
) -> Kubelet:
    nodes = sorted({node for node in numa if node is not None})
    # A NUMA node without GPUs: cadvisor shows those too.
    return Kubelet(policy.value, scope.value, numa, [*nodes, 9], healthy=set(gpus_of(free)))


def _containers(requests: tuple[ContainerRequest, ...]) -> list[Container]:
    """As the pod has them: one without GPUs is admitted like any other."""
    gpu = [Container(one.name, one.size, one.role.value) for one in requests]
    return [*gpu, Container("plain", 0)]


def _given(kubelet: Kubelet, requests: tuple[ContainerRequest, ...], fit: PodFit) -> dict[str, int]:
    """What the kubelet gives when the plugin answers with the plan."""
    plan = {name: set(one.gpus) for name, one in fit.containers}
    lasting = {gpu for one in requests if one.role is not INIT for gpu in plan[one.name]}

    def plugin(name: str, available: set[int], must: set[int], size: int) -> set[int]:
        assert must <= plan[name] <= available, f"{name}: {plan[name]} of {available}"
        assert len(plan[name]) == size
        return plan[name]

    def take(devices: set[int]) -> list[int]:
        # Of all orders in which Go's map may hand them out, the plan's.
        name = next(one.name for one in requests if one.name not in kubelet.given)
        return sorted(devices, key=lambda gpu: (gpu not in plan[name], gpu not in lasting, gpu))

    kubelet.take = take
    given = kubelet.admit(_containers(requests), plugin)
    return {name: mask_of(devices) for name, devices in given.items()}


def _check(
    numa: tuple[int | None, ...],
    requests: tuple[ContainerRequest, ...],
    manager: TopologyManager,
    *,
    available: int,
    idle: int,
    wish: PlacementPolicy = DEFAULT_POLICY,
) -> PodFit | Unfit:
    _, machine = _machine(numa)
    found = fit_admitted(
        machine,
        kubelet=KubeletState(manager, idle),
        available=available,
        requests=requests,
        policy=wish,
    )
    case = f"{requests} of {available:b}/{idle:b} under {manager}"
    if isinstance(found, PodFit):
        assert found.used & ~available == 0, case
        planned = {name: one.mask for name, one in found.containers}
        kubelet = _kubelet(numa, manager.policy, manager.scope, idle)
        assert _given(kubelet, requests, found) == planned, case
        expected = remainder_cost(machine, available, found.used)
        assert found.remainder_cost_gpus == pytest.approx(expected), case
    return found


EIGHT: tuple[int | None, ...] = (0, 0, 0, 0, 1, 1, 1, 1)
MIXED: tuple[int | None, ...] = (0, 0, 0, 1, 1, 1, None, None)
SIXTEEN: tuple[int | None, ...] = tuple(i // 4 for i in range(16))


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("policy", POLICIES)
def test_one_container_gets_a_set_exactly_where_the_kubelet_admits_it(policy, scope):
    """Every free mask and size on 8 GPUs and 2 NUMA nodes."""
    manager = TopologyManager(policy, scope)
    for free in range(1, 256):
        for requests in PODS["one app"]:
            found = _check(EIGHT, requests, manager, available=free, idle=free)
            (request,) = requests
            if isinstance(found, PodFit) or request.size > free.bit_count():
                continue
            assert found.reason in REFUSED
            with pytest.raises(NotAdmitted, match="TopologyAffinityError"):
                _kubelet(EIGHT, policy, scope, free).admit(
                    _containers(requests), lambda _name, available, _must, _size: available
                )


@pytest.mark.parametrize("numa", [EIGHT, MIXED], ids=["8x2", "two GPUs without NUMA node"])
@pytest.mark.parametrize("kind", [kind for kind in PODS if kind != "one app"])
def test_what_is_planned_for_a_pod_is_what_the_kubelet_gives(kind, numa):
    """Several containers and what init containers hand on, each policy and scope."""
    rng = random.Random(kind)  # noqa: S311 - the same cases in each run
    n_fits = 0
    for requests, policy, scope in product(PODS[kind], POLICIES, SCOPES):
        manager = TopologyManager(policy, scope)
        for free in (0xFF, *(rng.randrange(256) | rng.randrange(256) for _ in range(25))):
            found = _check(numa, requests, manager, available=free, idle=free)
            n_fits += isinstance(found, PodFit)
            if isinstance(found, Unfit) and policy is BEST_EFFORT:
                assert found.reason is UnfitReason.NOT_ENOUGH_FREE, "best-effort refuses no pod"
    assert n_fits > 50


def test_plans_hold_on_16_gpus_and_4_numa_nodes():
    """Two NUMA nodes of four: the kubelet takes the lowest pair that will do."""
    rng = random.Random(16)  # noqa: S311 - the same cases in each run
    pods = [_pod(size) for size in (1, 3, 5, 8, 11)] + [_pod(5, 6), _pod((6, INIT), 4, 5)]
    for requests, policy, scope in product(pods, POLICIES, SCOPES):
        manager = TopologyManager(policy, scope)
        for _ in range(15):
            free = rng.randrange(1 << 16) | rng.randrange(1 << 16)
            _check(SIXTEEN, requests, manager, available=free, idle=free)


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("policy", POLICIES)
def test_claims_are_free_to_the_kubelet(policy, scope):
    """It confines by what it has, which is more than may be planned on."""
    rng = random.Random(3)  # noqa: S311 - the same cases in each run
    manager, reasons = TopologyManager(policy, scope), set[UnfitReason]()
    for requests in [*PODS["one app"][:4], *PODS["two apps"]]:
        for _ in range(40):
            idle = rng.randrange(256) | rng.randrange(256)
            available = idle & (rng.randrange(256) | rng.randrange(256))
            found = _check(EIGHT, requests, manager, available=available, idle=idle)
            if isinstance(found, Unfit):
                reasons.add(found.reason)
    assert UnfitReason.ALIGNMENT_APART in reasons


def _fit(requests, manager, *, free=0xFF, idle=None, wish=DEFAULT_POLICY) -> Any:
    idle = free if idle is None else idle
    return _check(EIGHT, requests, manager, available=free, idle=idle, wish=wish)


def test_the_kubelets_numa_node_wins_over_the_better_set():
    """best-effort confines as well: whatever is planned elsewhere is overridden."""
    free = 0b1111_0111
    manager = TopologyManager(BEST_EFFORT, CONTAINER)
    plain = fit_pod(V100, available=free, requests=_pod(3))
    assert isinstance(plain, PodFit)
    found = _fit(_pod(3), manager, free=free)
    assert isinstance(found, PodFit)
    assert found.used == 0b0111
    assert _fit(_pod(4), manager, free=free).used == 0xF0


def test_what_is_left_behind_is_counted_on_the_whole_node():
    """The room is where a set may lie, not all that the node has to offer afterwards."""
    free = 0b1111_1110
    found = _fit(_pod(1), TopologyManager(RESTRICTED, CONTAINER), free=free)
    assert isinstance(found, PodFit)
    best = min((remainder_cost(V100, free, 1 << gpu), gpu) for gpu in gpus_of(free) if gpu < 4)
    assert remainder_cost(V100, free, found.used) == pytest.approx(best[0])
    inside = select_set(V100, available=0b1110, beside=0b1111_0000, size=1)
    assert isinstance(inside, Selected)
    assert inside.gpus == gpus_of(found.used)


def test_containers_side_by_side_are_chosen_together_inside_the_room():
    """Two pairs on one NUMA node; one after another, the first would take a link that both need."""
    free = 0b0011_1111
    found = _fit(_pod(2, 2), TopologyManager(RESTRICTED, POD), free=free)
    assert isinstance(found, PodFit)
    assert [one.gpus for _, one in found.containers] == [(0, 3), (1, 2)]
    assert found.worst.loss == pytest.approx(0)


def test_what_is_left_behind_counts_one_after_another_as_well():
    """The first container's room is half of the node; what it takes costs all of it."""
    free = 0b0111_1001
    found = _fit(_pod(1, 2), TopologyManager(RESTRICTED, CONTAINER), free=free)
    assert isinstance(found, PodFit)
    (_, single), (_, pair) = found.containers
    assert (single.gpus, pair.gpus) == ((3,), (5, 6))
    assert remainder_cost(V100, free, 0b1000) < remainder_cost(V100, free, 0b0001)


def test_a_claimed_gpu_that_the_kubelet_takes_first_cannot_be_planned_around():
    """It takes all GPUs of its hint before it requests the rest, the claimed one too."""
    manager = TopologyManager(BEST_EFFORT, CONTAINER)
    found = _check(MIXED, _pod(7), manager, available=0xFE, idle=0xFF)
    assert isinstance(found, Unfit)
    assert found.reason is UnfitReason.ALIGNMENT_APART
    assert found.detail.endswith("some of them are claimed")


def test_containers_one_after_another_where_their_rooms_differ():
    """Three and three do not fit on one NUMA node; the second one's hint is the other."""
    found = _fit(_pod(3, 3), TopologyManager(SINGLE, CONTAINER), free=0b0111_1111)
    assert isinstance(found, PodFit)
    assert [one.mask & 0xF0 == 0 for _, one in found.containers] == [True, False]
    three = _fit(_pod(3, 3, 2), TopologyManager(SINGLE, CONTAINER))
    assert isinstance(three, Unfit)
    assert three.reason is UnfitReason.ALIGNMENT_TAKEN


def test_scope_pod_sees_one_size_where_scope_container_sees_two():
    """Four and four: each fits a NUMA node, both together never do."""
    assert isinstance(_fit(_pod(4, 4), TopologyManager(SINGLE, CONTAINER)), PodFit)
    refused = _fit(_pod(4, 4), TopologyManager(SINGLE, POD))
    assert isinstance(refused, Unfit)
    assert refused.reason is UnfitReason.ALIGNMENT_NEVER
    assert "8 GPUs take NUMA nodes 0, 1, expected 1 of them" in refused.detail


def test_an_init_container_may_cost_the_pod_its_place():
    """What it hands on spans two NUMA nodes, and the app's hint has to hold all of that."""
    pod = _pod((6, INIT), 2)
    manager = TopologyManager(RESTRICTED, CONTAINER)
    refused = _fit(pod, manager)
    assert isinstance(refused, Unfit)
    assert refused.reason is UnfitReason.ALIGNMENT_TAKEN
    assert isinstance(_fit(pod, TopologyManager(RESTRICTED, POD)), PodFit)


def test_refused_for_now_differs_from_never():
    """Waiting helps the one and not the other."""
    manager = TopologyManager(RESTRICTED, CONTAINER)
    now = _fit(_pod(4), manager, free=0b0011_0111)
    assert isinstance(now, Unfit)
    assert now.reason is UnfitReason.ALIGNMENT_TAKEN
    assert now.detail == (
        "policy restricted, scope container: 4 GPUs take NUMA nodes 0, 1, expected 1 of them"
    )
    never = _check(MIXED, _pod(7), manager, available=0xFF, idle=0xFF)
    assert isinstance(never, Unfit)
    assert never.reason is UnfitReason.ALIGNMENT_NEVER
    assert never.detail.endswith("7 GPUs, but only of 6 the NUMA node is known")


def test_a_required_affinity_that_the_room_lacks_is_said_so():
    """A free set has it, but the kubelet would give another."""
    wish = PlacementPolicy(affinity=Affinity.NVLINK, strength=Strength.REQUIRED)
    numa = (0, 1, 1, 1, 1, 0, 1, 1)
    free = 0b0010_0111
    assert not DGX1.links[0][5].is_up
    assert DGX1.links[0][1].is_up
    alone = fit_pod(_machine(numa)[1], available=free, requests=_pod(2), policy=wish)
    assert isinstance(alone, PodFit)
    manager = TopologyManager(BEST_EFFORT, CONTAINER)
    found = _check(numa, _pod(2), manager, available=free, idle=free, wish=wish)
    assert isinstance(found, Unfit)
    assert found.reason is UnfitReason.ALIGNMENT_APART
    assert found.detail == ("policy best-effort, scope container: 2 GPUs of (0, 5): " + NO_NVLINK)


def test_what_no_node_state_can_give_keeps_its_own_reason():
    """The Topology Manager is not blamed for what is missing without it."""
    manager = TopologyManager(SINGLE, POD)
    assert _fit(_pod(9), manager).reason is UnfitReason.TOO_FEW_GPUS
    assert _fit(_pod(3), manager, free=0b11).reason is UnfitReason.NOT_ENOUGH_FREE


def test_nothing_is_confined_where_no_gpu_has_a_known_numa_node():
    """The kubelet gets no topology, and leaves all to the plugin."""
    blind: tuple[int | None, ...] = (None,) * 8
    for policy, scope in product(POLICIES, SCOPES):
        found = _check(blind, _pod(6), TopologyManager(policy, scope), available=0xFF, idle=0xFF)
        assert found == fit_pod(_machine(blind)[1], available=0xFF, requests=_pod(6))


@pytest.mark.parametrize("kind", PODS)
def test_pods_of_the_table_are_as_large_as_the_kubelet_counts_them(kind):
    """`PodLimits` decides the hint of scope pod."""
    for requests in PODS[kind]:
        assert pod_limits(_containers(requests)) == pod_size(requests)
