"""A whole pod: all containers together, against brute force; what the kubelet hands on."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.brute_force import BruteForce, is_remainder_first
from tests.examples import up_to
from tests.machine_strategies import build_machine_by_hand, built_machines, policies
from topology.annotations import DEFAULT_POLICY, Affinity, NicRule, PlacementPolicy, Strength
from topology.errors import InvalidRequest, UnknownDevice
from topology.model import PcieLevel
from topology.recordings import load_recording
from topology.select import (
    ContainerRequest,
    ContainerRole,
    MachineTables,
    PodFit,
    Selected,
    Unfit,
    UnfitReason,
    build_machine,
    build_tables,
    fit_pod,
    pod_size,
    select_set,
)
from topology.value import gpus_of, mask_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from tests.brute_force import SetFacts
    from tests.messages import CheckMessage
    from topology.model import NodeTopology

INIT, SIDECAR, APP = ContainerRole.INIT, ContainerRole.SIDECAR, ContainerRole.APP
V100 = build_tables(load_recording("dgx-1-v100"))


def _pod(*containers: tuple[int, ContainerRole]) -> tuple[ContainerRequest, ...]:
    return tuple(
        ContainerRequest(f"c{place}", size, role) for place, (size, role) in enumerate(containers)
    )


def _divisions(
    options: list[list[SetFacts]], taken: frozenset[int] = frozenset()
) -> Iterator[tuple[SetFacts, ...]]:
    """Every way to give each container a set of its own, disjoint from the others'."""
    if not options:
        yield ()
        return
    for facts in options[0]:
        if taken.isdisjoint(facts.gpus):
            for others in _divisions(options[1:], taken.union(facts.gpus)):
                yield (facts, *others)


def _shortfall(
    reference: BruteForce, facts: SetFacts, policy: PlacementPolicy
) -> tuple[bool, bool, float]:
    """Affinity missed, NIC missed, loss of the best value of the set's class."""
    size = len(facts.gpus)
    has_no_nic = policy.nic is NicRule.PREFERRED and not facts.has_nic
    if is_remainder_first(policy, size):
        return (False, has_no_nic, 0.0)
    every = reference.facts(size).values()
    top = max(other.value for other in every if other.value_class == facts.value_class)
    alike = [other.value for other in every if other.is_uniform] or [o.value for o in every]
    loss = max(0.0, 1 - top / max(alike))
    return (policy.affinity not in facts.levels, has_no_nic, round(loss, 9))


@given(
    rng=st.randoms(use_true_random=True),
    topology=built_machines(min_gpus=2, max_gpus=8),
    policy=policies(),
)
@settings(max_examples=up_to(80), phases=(Phase.explicit, Phase.reuse, Phase.generate))
def test_containers_are_chosen_together(
    rng: Random, topology: NodeTopology, policy: PlacementPolicy
) -> None:
    """The worst container falls short as little as can be; then the union leaves most behind."""
    n = topology.n_gpus
    tables = build_tables(topology)
    reference = BruteForce(tables)
    sizes = [rng.randint(1, 3) for _ in range(rng.randint(2, 3))]
    available = rng.randrange(1, 1 << n) | rng.randrange(1, 1 << n)
    found = fit_pod(
        tables,
        available=available,
        requests=_pod(*((size, APP) for size in sizes)),
        policy=policy,
    )
    free = frozenset(gpus_of(available))
    options = [reference.ordered(free, (), size, policy) for size in sizes]
    ways = list(_divisions(options))
    if not ways:
        assert isinstance(found, Unfit)
        return
    assert isinstance(found, PodFit)

    def key(way: tuple[SetFacts, ...]) -> tuple[object, float]:
        left = free.difference(*(facts.gpus for facts in way))
        worst = max(_shortfall(reference, facts, policy) for facts in way)
        return (worst, -reference.remainder(left))

    chosen = tuple(reference.facts(len(s.gpus))[s.gpus] for _, s in found.containers)
    assert [len(facts.gpus) for facts in chosen] == sizes
    assert all(reference.qualifies(facts, policy) for facts in chosen)
    assert found.used == mask_of(gpu for facts in chosen for gpu in facts.gpus)
    assert found.used.bit_count() == sum(sizes)
    assert found.used & ~available == 0
    assert key(chosen) == min(key(way) for way in ways)
    cost = reference.remainder(free) - reference.remainder(free.difference(gpus_of(found.used)))
    assert found.remainder_cost_gpus == pytest.approx(cost * n, abs=1e-6)
    assert found.worst.satisfies_affinity is all(s.satisfies_affinity for _, s in found.containers)
    rated = [
        s.loss
        for _, s in found.containers
        if s.satisfies_affinity is found.worst.satisfies_affinity
    ]
    assert found.worst.loss == max(rated)


@given(data=st.data(), policy=policies())
@settings(max_examples=up_to(80))
def test_init_containers_nest_in_what_comes_after(
    data: st.DataObject, policy: PlacementPolicy
) -> None:
    """What init containers leave behind the kubelet reuses before it calls a plugin."""
    roles = st.sampled_from([INIT, SIDECAR])
    sizes = st.integers(1, 4)
    head = data.draw(st.lists(st.tuples(sizes, roles), max_size=4))
    tail = data.draw(st.lists(st.tuples(sizes, st.just(APP)), min_size=1, max_size=2))
    requests = _pod(*head, *tail)
    available = data.draw(st.integers(1, 255))
    found = fit_pod(V100, available=available, requests=requests, policy=policy)
    if isinstance(found, Unfit):
        return
    sets = [selected.mask for _, selected in found.containers]
    assert [name for name, _ in found.containers] == [request.name for request in requests]
    handed = held = 0
    for request, mask in zip(requests, sets, strict=True):
        assert mask.bit_count() == request.size
        assert mask & ~available == 0
        assert mask & held == 0
        # The kubelet takes all it needs from what is handed on, and all of it where that is less.
        assert mask & handed in {mask, handed}
        handed = handed | mask if request.role is INIT else handed & ~mask
        held |= mask if request.role is not INIT else 0
    assert found.used.bit_count() >= pod_size(requests)


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        pytest.param([(4, APP)], {0: (0, 1, 2, 3)}, id="one container gets its best set"),
        pytest.param(
            [(2, INIT), (4, APP)], {0: (0, 3), 1: (0, 1, 2, 3)}, id="inside the first app's set"
        ),
        pytest.param(
            [(4, INIT), (2, APP)], {0: (0, 1, 2, 3), 1: (0, 3)}, id="holding the first app's set"
        ),
        pytest.param(
            [(1, INIT), (2, INIT), (4, APP)],
            {0: (0,), 1: (0, 3), 2: (0, 1, 2, 3)},
            id="the second holds what the first hands on",
        ),
        pytest.param([(4, INIT)], {0: (0, 1, 2, 3)}, id="no container keeps anything"),
    ],
)
def test_what_the_kubelet_hands_on_is_planned(
    containers: list[tuple[int, ContainerRole]], expected: dict[int, tuple[int, ...]]
) -> None:
    """A plan that the kubelet cannot follow is a plan broken for every such pod."""
    found = fit_pod(V100, available=0xFF, requests=_pod(*containers))
    assert isinstance(found, PodFit)
    sets = [selected.gpus for _, selected in found.containers]
    worth = [float(V100.value[mask_of(gpus)]) for gpus in expected.values()]
    assert [float(V100.value[mask_of(gpus)]) for gpus in sets] == worth
    for smaller, larger in pairwise(sorted(sets, key=len)):
        assert set(smaller) <= set(larger)


def test_an_init_container_before_a_sidecar_hands_on_to_it() -> None:
    """The kubelet serves the next container of the pod, and that is the sidecar."""
    found = fit_pod(V100, available=0xFF, requests=_pod((2, INIT), (2, SIDECAR), (4, APP)))
    assert isinstance(found, PodFit)
    (_, init), (_, sidecar), (_, app) = found.containers
    assert init.gpus == sidecar.gpus
    assert sidecar.mask & app.mask == 0


def test_an_init_container_larger_than_the_app_reaches_into_the_next_app() -> None:
    """What the first app leaves of it goes to the second."""
    found = fit_pod(V100, available=0xFF, requests=_pod((3, INIT), (2, APP), (2, APP)))
    assert isinstance(found, PodFit)
    (_, init), (_, first), (_, second) = found.containers
    assert init.mask & first.mask == first.mask
    assert init.mask & ~(first.mask | second.mask) == 0
    assert found.used == first.mask | second.mask


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        pytest.param([(2, APP)], 2, id="one"),
        pytest.param([(2, APP), (3, APP)], 5, id="apps add up"),
        pytest.param([(2, INIT), (3, INIT), (1, APP)], 3, id="the largest init container"),
        pytest.param([(2, INIT), (3, APP)], 3, id="a smaller init container is free"),
        pytest.param([(1, SIDECAR), (4, INIT), (2, APP)], 5, id="sidecar before init adds to it"),
        pytest.param([(4, INIT), (1, SIDECAR), (2, APP)], 4, id="sidecar after init does not"),
        pytest.param([(4, INIT), (1, SIDECAR), (4, APP)], 5, id="sidecars run beside the apps"),
        pytest.param(
            [(1, SIDECAR), (2, INIT), (2, SIDECAR), (2, INIT), (1, APP)],
            5,
            id="only the sidecars started so far",
        ),
        pytest.param([(3, SIDECAR)], 3, id="sidecars alone"),
    ],
)
def test_a_pod_holds_kubernetes_effective_request(
    containers: list[tuple[int, ContainerRole]], expected: int
) -> None:
    """kube-scheduler counts the same (resource helpers, PodRequests, Kubernetes 1.29 on)."""
    requests = _pod(*containers)
    assert pod_size(requests) == expected
    found = fit_pod(V100, available=0xFF, requests=requests)
    assert isinstance(found, PodFit)
    assert found.used.bit_count() >= expected
    short = fit_pod(V100, available=(1 << (expected - 1)) - 1, requests=requests)
    assert isinstance(short, Unfit)
    assert short.reason is UnfitReason.NOT_ENOUGH_FREE


PAIRS = build_machine_by_hand(
    8, links={(0, 1): 2, (2, 3): 2, (4, 5): 2}, levels={PcieLevel.NODE: [(0, 1, 2, 3, 4, 5, 6, 7)]}
)


def _required(affinity: Affinity) -> PlacementPolicy:
    return PlacementPolicy(affinity=affinity, strength=Strength.REQUIRED)


NVLINK = _required(Affinity.NVLINK)


@pytest.mark.parametrize(
    ("containers", "available", "policy", "reason"),
    [
        pytest.param(
            [(5, APP), (4, APP)], 0xFF, DEFAULT_POLICY, "TOO_FEW_GPUS", id="more than there are"
        ),
        pytest.param(
            [(2, APP), (2, APP)], 0b111, DEFAULT_POLICY, "NOT_ENOUGH_FREE", id="more than are free"
        ),
        pytest.param(
            [(2, APP), (2, APP)],
            0b11001011,
            NVLINK,
            "CONTAINERS_TAKEN",
            id="one linked pair for two",
        ),
        pytest.param(
            [(2, APP), (2, APP)],
            0b11010110,
            NVLINK,
            "AFFINITY_TAKEN",
            id="no linked pair for either",
        ),
        pytest.param([(1, APP), (3, APP)], 0xFF, NVLINK, "AFFINITY_NEVER", id="one of them never"),
        pytest.param(
            [(4, INIT), (2, APP)], 0xFF, NVLINK, "AFFINITY_NEVER", id="an init container as any"
        ),
        pytest.param(
            [(3, APP)], 0xFF, NVLINK, "AFFINITY_NEVER", id="a single container as by itself"
        ),
        pytest.param(
            [(3, APP)], 0b11, NVLINK, "AFFINITY_NEVER", id="never, and too few are free now"
        ),
        pytest.param(
            [(2, APP), (3, APP)], 0b1, NVLINK, "AFFINITY_NEVER", id="never, for the second one"
        ),
        pytest.param([(2, APP)], 0b1, NVLINK, "NOT_ENOUGH_FREE", id="a linked pair, later"),
        pytest.param(
            [(2, APP), (2, APP), (2, APP), (2, APP)],
            0b111,
            NVLINK,
            "NOT_ENOUGH_FREE",
            id="never together, which only a search knows",
        ),
    ],
)
def test_a_pod_that_does_not_fit_gets_the_reason(
    containers: list[tuple[int, ContainerRole]],
    available: int,
    policy: PlacementPolicy,
    reason: str,
) -> None:
    """Each container alone may fit where all of them do not."""
    found = fit_pod(
        build_tables(PAIRS), available=available, requests=_pod(*containers), policy=policy
    )
    assert isinstance(found, Unfit)
    assert found.reason is UnfitReason[reason]
    assert found.detail


TWO_MODELS = build_machine_by_hand(8, links={(0, 1): 2, (4, 5): 2}, models=["A"] * 4 + ["B"] * 4)


@pytest.mark.parametrize("sizes", [(3, 5), (5, 3)])
def test_never_is_said_whichever_container_comes_first(sizes: tuple[int, int]) -> None:
    """Five GPUs of one model are never there either, but that reason speaks of free GPUs."""
    found = fit_pod(
        build_tables(TWO_MODELS),
        available=0b1,
        requests=_pod(*((size, APP) for size in sizes)),
        policy=NVLINK,
    )
    assert isinstance(found, Unfit)
    assert found.reason is UnfitReason.AFFINITY_NEVER
    assert "3 GPUs" in found.detail


def test_models_that_never_mix_are_no_reason_of_a_full_node() -> None:
    """That reason speaks of the GPUs that are free, so it comes once enough are."""
    found = fit_pod(build_tables(TWO_MODELS), available=0b1, requests=_pod((5, APP)))
    assert isinstance(found, Unfit)
    assert found.reason is UnfitReason.NOT_ENOUGH_FREE


def test_nothing_is_searched_for_where_too_few_are_free() -> None:
    """Above 16 GPUs it would take a search to know that it is never."""
    machine = build_machine(build_machine_by_hand(20))
    found = fit_pod(machine, available=1, requests=_pod((2, APP)), policy=NVLINK)
    assert isinstance(found, Unfit)
    assert found.reason is UnfitReason.NOT_ENOUGH_FREE


def test_the_nic_wish_counts_for_every_container() -> None:
    """Two pods' worth of containers, two switches with a NIC: each gets one."""
    machine = build_machine_by_hand(
        8,
        links={(0, 1): 2, (2, 3): 2, (4, 5): 1, (6, 7): 1},
        near_nic=(4, 5, 6, 7),
    )
    policy = PlacementPolicy(nic=NicRule.PREFERRED)
    found = fit_pod(
        build_tables(machine), available=0xFF, requests=_pod((2, APP), (2, APP)), policy=policy
    )
    assert isinstance(found, PodFit)
    assert found.used == 0b11110000


@pytest.mark.parametrize(
    "requests",
    [
        pytest.param((), id="no request"),
        pytest.param((ContainerRequest("a", 1), ContainerRequest("a", 2)), id="one name twice"),
    ],
)
def test_a_pod_that_cannot_be_meant_is_an_error(
    requests: tuple[ContainerRequest, ...], check_message: CheckMessage
) -> None:
    """Kubernetes lets neither through."""
    with pytest.raises(InvalidRequest) as caught:
        fit_pod(V100, available=0xFF, requests=requests)
    check_message(caught.value)


@pytest.mark.parametrize("size", [0, -1])
def test_a_container_that_requests_nothing_is_an_error(size: int) -> None:
    """Only containers that request GPUs come here."""
    with pytest.raises(InvalidRequest, match=f"container 'a' requests {size} GPUs"):
        ContainerRequest("a", size)


@pytest.mark.parametrize("available", [0x100, -1])
def test_a_gpu_that_is_not_there_is_an_error(available: int, check_message: CheckMessage) -> None:
    """Same as for a single set."""
    with pytest.raises(UnknownDevice) as caught:
        fit_pod(V100, available=available, requests=_pod((2, APP), (2, APP)))
    check_message(caught.value)


@cache
def _dgx_2() -> MachineTables:
    return build_tables(load_recording("dgx-2"))


@pytest.mark.parametrize("affinity", Affinity)
@pytest.mark.parametrize("sizes", [(5, 5, 6), (4, 4, 4), (8, 8), (1, 2, 3, 4), (1,) * 7])
def test_16_gpus_are_divided_too(sizes: tuple[int, ...], affinity: Affinity) -> None:
    """The joint choice is exact here too: no container is worse than if it came alone and last."""
    tables = _dgx_2()
    policy = PlacementPolicy(affinity=affinity)
    found = fit_pod(
        tables, available=0xFFFF, requests=_pod(*((size, APP) for size in sizes)), policy=policy
    )
    assert isinstance(found, PodFit)
    assert found.used.bit_count() == sum(sizes)
    free, worst = 0xFFFF, 0.0
    for size in sizes:
        alone = select_set(tables, available=free, size=size, policy=policy)
        assert isinstance(alone, Selected)
        free &= ~alone.mask
        worst = max(worst, alone.loss)
    assert found.worst.loss <= worst


def test_above_16_devices_containers_come_one_after_another() -> None:
    """Largest first, in the order of the request afterwards; a part that fails fails the pod."""
    machine = build_machine(
        build_machine_by_hand(
            20, parents=[f"p{i // 5}" for i in range(20)], far=PcieLevel.PIX, near_nic=range(4)
        )
    )
    found = fit_pod(
        machine, available=(1 << 20) - 1, requests=_pod((2, APP), (5, APP), (1, SIDECAR))
    )
    assert isinstance(found, PodFit)
    assert [len(selected.gpus) for _, selected in found.containers] == [2, 5, 1]
    assert found.used.bit_count() == 8
    assert found.remainder_cost_gpus > 0
    policy = PlacementPolicy(nic=NicRule.REQUIRED)
    refused = fit_pod(
        machine, available=(1 << 20) - 16, requests=_pod((2, APP), (2, APP)), policy=policy
    )
    assert isinstance(refused, Unfit)
    assert refused.reason is UnfitReason.NIC_TAKEN
