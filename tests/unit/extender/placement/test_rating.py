"""What is remembered of node states, and what a node without topology may take."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest

from extender.placement import Rank, Rater, RatingBudget, Refusal, rank_fit, rating, rating_work
from extender.placement.node_order import unranked
from extender.protocol import PodRequest, Reason, Shape, messages, parse_pod
from extender.snapshot import MachineType, NodeClass, NodeView, make_view, with_free
from tests.machine_strategies import build_machine_by_hand
from tests.unit.extender.engines import engine
from tests.unit.extender.pods import GPU, pod
from topology.annotations import Affinity, NicRule, PlacementPolicy, Prefer, Strength
from topology.recordings import load_recording
from topology.select import ContainerRequest, PodFit, build_machine, select_sets

BLIND = make_view(
    "blind", zone="a", node_class=NodeClass(0, "blind", GPU, None), ids=tuple("abcdefgh"), free=0xFF
)
DEVICES = tuple(f"GPU-{i}" for i in range(17))


def request(n_gpus: int, **annotations: str) -> PodRequest:
    """A pod with one container."""
    content = json.dumps(pod(n_gpus, **annotations)).encode()
    return parse_pod(messages.decode(messages.WirePod, content), (GPU,))


@pytest.mark.parametrize(
    ("wish", "is_taken"),
    [
        pytest.param({}, True, id="no wish"),
        pytest.param({"affinity": "nvlink"}, True, id="an affinity that is preferred"),
        pytest.param({"nic": "preferred"}, True, id="a NIC that is preferred"),
        pytest.param({"affinity": "nvlink", "policy": "required"}, False, id="required"),
        pytest.param({"min_bandwidth": "10"}, False, id="a floor: unknown never satisfies"),
        pytest.param(
            {"min_bandwidth": "10", "affinity": "none"}, False, id="a floor without an affinity"
        ),
        pytest.param({"nic": "required"}, False, id="a NIC that is required"),
    ],
)
def test_unknown_topology_satisfies_nothing_that_is_required(wish, is_taken):
    """A count says nothing of links or NICs, so it must not stand for them."""
    (found,) = Rater().rate(request(2, **wish), (BLIND,))
    assert isinstance(found, Rank) if is_taken else found == Refusal(Reason.NO_TOPOLOGY)


def test_a_nic_may_be_required_for_one_gpu_too():
    """A single GPU has no peer on the node, but its traffic leaves the node."""
    assert Rater().rate(request(1, nic="required"), (BLIND,)) == [Refusal(Reason.NO_TOPOLOGY)]


def test_shapes_that_rated_no_node_are_not_kept():
    """Requests for unknown nodes only, in ever new shapes, must not fill the memory."""
    rater, wanted = Rater(), request(2)
    n_references = [sys.getrefcount(wanted.shape)]
    for views in ((), (BLIND,)):
        rater.rate(wanted, views)
        n_references.append(sys.getrefcount(wanted.shape))
    before, unrated, rated = n_references
    assert before == unrated < rated


def test_a_pod_without_gpus_is_never_rated():
    """Every node would look feasible to it by accident."""
    with pytest.raises(ValueError, match="default/pod-u1 requests no GPU"):
        Rater().rate(request(0), ())


def test_the_shape_used_longest_ago_is_forgotten_first(monkeypatch):
    """A shape that comes again and again stays, however early it came first."""
    rated: list[int] = []

    def counted(tables, **arguments):
        rated.append(arguments["size"])
        return select_sets(tables, **arguments)

    monkeypatch.setattr(rating, "select_sets", counted)
    views: list[NodeView] = [engine({"count": 1, "machine": "8x-l4"}).cluster.snapshot.views[0]]
    rater = Rater(max_entries=2)
    for n_gpus in (1, 2, 1, 3, 1, 2):
        rater.rate(request(n_gpus), views)
    assert rated == [1, 2, 3, 2]
    assert rater.n_entries == 2


def used(*n_used: int) -> list[NodeView]:
    """Views of equal machines, on which so many GPUs are taken."""
    view = engine({"count": 1, "machine": "8x-l4"}).cluster.snapshot.views[0]
    return [with_free(view, view.free >> n) for n in n_used]


def test_states_beyond_the_budget_are_rated_by_count_and_then_beside():
    """The next call knows them: it needs no budget for them."""
    rater, views, wanted = Rater(), used(0, 1, 2, 7), request(2, affinity="nvlink")
    budget = RatingBudget.of_states(1)
    first, second, third, full = rater.rate(wanted, views, budget)
    assert (budget.n_rated, budget.n_deferred, rater.n_deferred) == (1, 3, 3)
    assert isinstance(first, Rank)
    assert first.step
    assert [second, third] == [unranked(7), unranked(6)]
    assert full == Refusal(Reason.NOT_ENOUGH_FREE)
    rater.rate_deferred(2)
    assert rater.n_deferred == 1
    rater.rate_deferred(2)
    assert rater.n_deferred == 0
    budget = RatingBudget.of_states(0)
    found = rater.rate(wanted, views, budget)
    assert (budget.n_rated, budget.n_deferred) == (0, 0)
    assert found == Rater().rate(wanted, views)


def test_a_condition_cannot_be_met_by_count():
    """The caller gets an error to retry, not that the node is unfit."""
    (found,) = Rater().rate(
        request(2, affinity="nvlink", policy="required"), used(0), RatingBudget.of_states(0)
    )
    assert found == Refusal(Reason.NOT_RATED)


def test_a_node_by_count_needs_no_budget():
    """There is nothing to search."""
    budget = RatingBudget.of_states(0)
    assert isinstance(Rater().rate(request(2), (BLIND,), budget)[0], Rank)
    assert budget.n_deferred == 0


def test_more_than_a_node_by_count_has_is_never_there():
    """It "would wait" for a pod to end that cannot make room; an unhealthy device may come back."""
    assert Rater().rate(request(9), (BLIND,), None)[0] == Refusal(Reason.TOO_FEW_GPUS)
    kind = NodeClass(1, "ailing", GPU, None, n_devices=9)
    ailing = make_view("n", zone="a", node_class=kind, ids=tuple("abcdefgh"), free=0xFF)
    assert Rater().rate(request(9), (ailing,), None)[0] == Refusal(Reason.NOT_ENOUGH_FREE)


def test_a_budget_that_is_spent_once_is_spent_for_the_call():
    """Else what is rated would depend on how a clock goes on."""
    answers = iter([False, True, False])
    budget = RatingBudget(lambda _: next(answers))
    assert [budget.allows() for _ in range(4)] == [True, False, False, False]
    assert (budget.n_rated, budget.n_deferred) == (1, 3)


def test_what_is_rated_meanwhile_is_not_rated_again():
    """Bind rates without a budget."""
    rater, wanted, views = Rater(), request(2), used(0)
    rater.rate(wanted, views, RatingBudget.of_states(0))
    rater.rate(wanted, views)
    rater.rate_deferred(1)
    assert (rater.n_deferred, rater.n_entries) == (0, 1)


def test_what_is_deferred_is_bounded():
    """Shapes that never come again must not fill the memory: the oldest is dropped."""
    rater = Rater(max_entries=2)
    rater.rate(request(2), used(0, 1, 2), RatingBudget.of_states(0))
    assert rater.n_deferred == 2


def test_a_search_counts_as_more_than_many_states_of_tables():
    """Links of more than 16 devices may be such that a search takes a tenth of a second."""
    linked = build_machine_by_hand(17, links={(0, 1): 2})
    slow = MachineType("pair", build_machine(linked))
    even = MachineType("even", build_machine(build_machine_by_hand(17)))
    views = [
        make_view(
            str(i), zone="a", node_class=NodeClass(i, str(i), GPU, one), ids=DEVICES, free=0x1FFFF
        )
        for i, one in enumerate((even, even, slow, slow, even))
    ]
    budget = RatingBudget.of_work(31)
    Rater().rate(request(2), views, budget)
    assert (budget.n_rated, budget.n_deferred) == (4, 1)
    budget = RatingBudget.of_work(2)
    Rater().rate(request(2), views, budget)
    assert (budget.n_rated, budget.n_deferred) == (1, 4)


@pytest.mark.parametrize(
    ("recording", "sizes", "resource", "work"),
    [
        pytest.param("dgx-1-v100", (4,), GPU, 1, id="tables of 8 GPUs"),
        pytest.param("dgx-2", (4,), GPU, 10, id="tables of 16 GPUs"),
        pytest.param("dgx-1-v100", (2, 2), GPU, 15, id="containers together"),
        pytest.param("dgx-2", (2, 2), GPU, 300, id="containers together, of 16 GPUs"),
        pytest.param("dgx-2", (2, 2), "nvidia.com/mig-1g.5gb", 1, id="refused at once"),
    ],
)
def test_work_grows_with_the_machine_and_the_containers(recording, sizes, resource, work):
    """A pod of two containers on 16 GPUs may take 10 ms for each state."""
    machine = MachineType(recording, build_machine(load_recording(recording)))
    requests = tuple(ContainerRequest(f"c{i}", size) for i, size in enumerate(sizes))
    shape = Shape(GPU, requests, PlacementPolicy())
    assert rating_work(shape, NodeClass(0, recording, resource, machine)) == work


@pytest.mark.parametrize("recording", ["dgx-1-v100", "8x-a6000-bridged", "dgx-a100"])
def test_states_that_are_rated_together_have_the_ranks_of_each(recording):
    """Whether a state is new alone or among hundreds must not change where a pod goes."""
    machine = MachineType(recording, build_machine(load_recording(recording)))
    kind = NodeClass(0, recording, GPU, machine, worth=2.5)
    views = [
        make_view("n", zone="a", node_class=kind, ids=tuple("abcdefgh"), free=free)
        for free in range(0, 256, 3)
    ]
    policies = [
        PlacementPolicy(affinity=affinity, strength=strength, nic=nic, prefer=prefer)
        for affinity in (Affinity.ANY, Affinity.NVLINK, Affinity.NUMA, Affinity.NONE)
        for strength in Strength
        for nic in (NicRule.UNSET, NicRule.PREFERRED)
        for prefer in Prefer
    ]
    for size in (1, 2, 4, 9):
        for policy in policies:
            shape = Shape(GPU, (ContainerRequest("0", size),), policy)
            wanted = replace(request(1), shape=shape, size_gpus=size)
            rater = Rater()
            for view, found in zip(views, rater.rate(wanted, views), strict=True):
                chosen = rater.choose(wanted, view)
                if isinstance(chosen, PodFit):
                    free = view.free.bit_count()
                    assert found == rank_fit(chosen, shape, n_free=free, worth=2.5)
                else:
                    assert found == chosen


def test_states_that_are_alike_are_rated_once():
    """Callers may name one state twice, as a pool of pods does."""
    (view,) = used(2)
    budget = RatingBudget.of_states(5)
    first, second = Rater().rate(request(2), [view, view], budget)
    assert first is second
    assert budget.n_rated == 1


def test_searches_come_after_states_of_tables():
    """One that the budget does not reach for must not keep hundreds of others from being rated."""
    slow = MachineType("pair", build_machine(build_machine_by_hand(17, links={(0, 1): 2})))
    kind = NodeClass(9, "pair", GPU, slow)
    first = make_view("0", zone="a", node_class=kind, ids=DEVICES, free=0x1FFFF)
    views = [first, *used(*range(6))]
    budget = RatingBudget(lambda work: work > 100)
    found = Rater().rate(request(2), views, budget)
    assert found[0] == unranked(17)
    assert all(isinstance(one, Rank) and one.step for one in found[1:])
    assert (budget.n_rated, budget.n_deferred) == (6, 1)


def test_a_full_node_takes_no_search():
    """Whether a pod fits there is known by counting."""
    slow = MachineType("pair", build_machine(build_machine_by_hand(17, links={(0, 1): 2})))
    view = make_view(
        "0", zone="a", node_class=NodeClass(9, "pair", GPU, slow), ids=DEVICES, free=0b1
    )
    budget = RatingBudget(lambda work: work > 1)
    (found,) = Rater().rate(request(2), (view,), budget)
    assert isinstance(found, Refusal)
    assert found.reason is Reason.NOT_ENOUGH_FREE
