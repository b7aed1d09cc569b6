"""The best set from the kubelet's three inputs, against brute force and by its properties."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.brute_force import BruteForce
from tests.examples import up_to
from tests.machine_strategies import (
    build_machine_by_hand,
    built_machines,
    policies,
    relabelled,
)
from topology.annotations import DEFAULT_POLICY, Affinity, NicRule, PlacementPolicy, Strength
from topology.errors import InvalidRequest, UnknownDevice
from topology.model import UNKNOWN_LINK, NodeTopology, PcieLevel
from topology.model.node_topology import MeasuredPair, Measurement
from topology.recordings import load_recording
from topology.select import (
    MachineTables,
    Selected,
    Unfit,
    UnfitReason,
    build_machine,
    build_tables,
    select_set,
    select_sets,
)
from topology.select.outcome import SetRequest
from topology.select.selection import qualifying_sets, remainder_cost
from topology.value import gpus_of, mask_of

if TYPE_CHECKING:
    from random import Random

    from tests.messages import CheckMessage

# Without shrinking: a machine is small as it is, and a failure names what differs.
BRUTE_FORCE_PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
EVERY_POLICY = [
    PlacementPolicy(affinity=affinity, strength=strength, nic=nic, min_bandwidth_gbytes_per_s=floor)
    for affinity, strength, nic, floor in product(Affinity, Strength, NicRule, (None, 4.0, 20.0))
]


@given(rng=st.randoms(use_true_random=True), topology=built_machines(min_gpus=2, max_gpus=10))
@settings(max_examples=up_to(25), phases=BRUTE_FORCE_PHASES)
def test_the_scan_is_brute_force(rng: Random, topology: NodeTopology) -> None:
    """Every policy, on free sets and must_include as they come: the same sets in the same order."""
    n = topology.n_gpus
    tables = build_tables(topology)
    reference = BruteForce(tables)
    for policy in EVERY_POLICY:
        available = rng.randrange(1, 1 << n) | 1 << rng.randrange(n)
        must_include = available & rng.randrange(1 << n) & rng.randrange(1 << n)
        size = rng.randint(max(1, must_include.bit_count()), available.bit_count())
        found = select_set(
            tables, available=available, must_include=must_include, size=size, policy=policy
        )
        request = SetRequest(available, size, must_include, policy)
        ordered = reference.ordered(gpus_of(available), gpus_of(must_include), size, policy)
        if not ordered:
            assert isinstance(found, Unfit), (found, policy)
            continue
        assert isinstance(found, Selected), (found, ordered[0], policy)
        best = ordered[0]
        every = [gpus_of(mask) for mask in qualifying_sets(tables, request)]
        assert every == [facts.gpus for facts in ordered], policy
        assert found.gpus == best.gpus, (found, best, policy)
        assert found.value_gbytes_per_s == pytest.approx(best.value, abs=2e-6)
        assert found.value_class == best.value_class
        assert found.satisfies_affinity is (policy.affinity in best.levels)
        after = frozenset(gpus_of(available & ~mask_of(found.gpus)))
        cost = reference.remainder(frozenset(gpus_of(available))) - reference.remainder(after)
        assert found.remainder_cost_gpus == pytest.approx(cost * n, abs=1e-6)


@given(rng=st.randoms(use_true_random=True))
@settings(max_examples=up_to(10), phases=BRUTE_FORCE_PHASES)
def test_the_scan_is_brute_force_on_measured_machines(rng: Random) -> None:
    """Class sums before the remainder, raw sums after it, both only if measured."""
    topology = load_recording("dgx-1-v100")
    pairs = [(i, j) for j in range(8) for i in range(j)]
    topology = replace(
        topology,
        measurement=Measurement(
            pairs=tuple(MeasuredPair(i, j, rng.choice([40, 41, 20, 8.5])) for i, j in pairs)
        ),
    )
    tables = build_tables(topology)
    reference = BruteForce(tables)
    for policy in (PlacementPolicy(affinity=affinity) for affinity in Affinity):
        available = rng.randrange(1, 256)
        size = rng.randint(1, available.bit_count())
        found = select_set(tables, available=available, size=size, policy=policy)
        assert isinstance(found, Selected)
        best = reference.ordered(gpus_of(available), (), size, policy)[0]
        assert (found.gpus, found.value_class) == (best.gpus, best.value_class)


# Machines of 16 GPUs: a switched one, and a mesh whose sets of one size differ in many ways.
_TORUS = {
    (min(a, b), max(a, b)): 1 + (step == 1)
    for a in range(16)
    for step in (1, 4)
    for b in [a - a % 4 + (a + 1) % 4 if step == 1 else (a + 4) % 16]
}


def _torus() -> NodeTopology:
    return build_machine_by_hand(
        16,
        links=_TORUS,
        levels={
            PcieLevel.PIX: [(i, i + 1) for i in range(0, 16, 2)],
            PcieLevel.NODE: [range(8), range(8, 16)],
        },
        numa=[0] * 8 + [1] * 8,
        near_nic=(2, 3, 8, 9),
    )


@cache
def _machine(name: str) -> MachineTables:
    return build_tables(_torus() if name == "torus" else load_recording(name))


BIG = ["torus", "dgx-2"]


@given(data=st.data(), name=st.sampled_from([*BIG, "dgx-1-v100"]), policy=policies())
@settings(max_examples=up_to(150))
def test_a_result_lies_inside_and_holds_what_it_must(
    data: st.DataObject, name: str, policy: PlacementPolicy
) -> None:
    """Also at 16 GPUs with sizes that give seven groups and more, where a peer's search broke."""
    tables = _machine(name)
    available = data.draw(st.integers(1, tables.all_gpus))
    must_include = available & data.draw(st.integers(0, tables.all_gpus))
    size = data.draw(st.integers(1, available.bit_count()))
    found = select_set(
        tables, available=available, must_include=must_include, size=size, policy=policy
    )
    if must_include.bit_count() > size:
        assert isinstance(found, Unfit)
        assert found.reason is UnfitReason.MUST_INCLUDE
        return
    if isinstance(found, Unfit):
        assert policy.strength is Strength.REQUIRED or policy != PlacementPolicy(policy.affinity)
        return
    assert found.mask & ~available == 0
    assert must_include & ~found.mask == 0
    assert len(found.gpus) == size
    assert 0 <= found.loss <= 1
    assert found == select_set(
        _machine.__wrapped__(name) if name == "dgx-1-v100" else tables,
        available=available,
        must_include=must_include,
        size=size,
        policy=policy,
    )


@given(data=st.data(), name=st.sampled_from([*BIG, "dgx-1-v100"]), policy=policies())
@settings(max_examples=up_to(150))
def test_more_free_gpus_never_give_less(
    data: st.DataObject, name: str, policy: PlacementPolicy
) -> None:
    """A set that could be had stays to be had: wishes first, then the value class."""
    tables = _machine(name)
    few = data.draw(st.integers(1, tables.all_gpus))
    many = few | data.draw(st.integers(0, tables.all_gpus))
    size = data.draw(st.integers(1, few.bit_count()))
    one = select_set(tables, available=few, size=size, policy=policy)
    other = select_set(tables, available=many, size=size, policy=policy)
    if isinstance(one, Unfit):
        return
    assert isinstance(other, Selected)
    assert (not other.satisfies_affinity) <= (not one.satisfies_affinity)
    values_first = policy.min_bandwidth_gbytes_per_s is None and policy.nic is NicRule.UNSET
    is_better = other.satisfies_affinity and not one.satisfies_affinity
    if values_first and policy.affinity is not Affinity.NONE and not is_better:
        assert other.value_class <= one.value_class


@pytest.mark.parametrize("step", [3, 5, 7])
def test_numbering_never_changes_what_a_pod_gets_on_16_gpus(step: int) -> None:
    """Same as above where no brute force reaches."""
    old_of = [(i * step + 1) % 16 for i in range(16)]
    new_of = {old: new for new, old in enumerate(old_of)}
    other = build_tables(relabelled(_torus(), old_of))
    for size in range(1, 17):
        for free in (range(16), range(0, 16, 3), range(5, 16)):
            one = select_set(_machine("torus"), available=mask_of(free), size=size)
            two = select_set(other, available=mask_of(new_of[gpu] for gpu in free), size=size)
            if isinstance(one, Selected) and isinstance(two, Selected):
                assert two.value_gbytes_per_s == pytest.approx(one.value_gbytes_per_s, abs=2e-6)
                assert two.loss == pytest.approx(one.loss, abs=1e-6)
            else:
                assert one == two


# What go-gpuallocator's own tests expect of best-effort (besteffort_test.go at 876e7b76), where
# the wish is the same as ours: the value of the set, since ties are ours to break.
@pytest.mark.parametrize(
    ("available", "must_include", "size", "expected"),
    [
        pytest.param((0, 2, 4, 5), (), 2, [(0, 4)], id="a double link before a PCIe neighbour"),
        pytest.param((0, 4, 5, 6), (), 2, [(5, 6), (0, 4)], id="one of the double links left"),
        pytest.param((0, 1, 3), (), 2, [(0, 3)], id="the only double link left"),
        pytest.param((0, 1, 4), (), 2, [(0, 4)], id="the double link crosses the sockets"),
        pytest.param(range(8), (4,), 1, [(4,)], id="one GPU that must be included"),
        pytest.param(range(8), (4,), 2, [(4, 7), (0, 4)], id="a double link of that GPU"),
        pytest.param(range(8), (4,), 4, [(4, 5, 6, 7)], id="the quad of that GPU"),
        pytest.param(range(8), (0, 2, 4, 6), 4, [(0, 2, 4, 6)], id="nothing left to choose"),
        pytest.param(range(8), (), 8, [tuple(range(8))], id="the whole machine"),
    ],
)
def test_the_set_is_worth_what_nvidia_expects(
    available: tuple[int, ...],
    must_include: tuple[int, ...],
    size: int,
    expected: list[tuple[int, ...]],
) -> None:
    """Golden cases of a peer on DGX-1 Volta; {0,2,4,5} is the one where it wishes otherwise."""
    tables = _machine("dgx-1-v100")
    found = select_set(
        tables, available=mask_of(available), must_include=mask_of(must_include), size=size
    )
    assert isinstance(found, Selected)
    assert found.gpus in expected
    assert {float(tables.value[mask_of(gpus)]) for gpus in expected} == {found.value_gbytes_per_s}


@pytest.mark.parametrize(
    ("available", "must_include", "size"),
    [
        pytest.param(range(1, 8), (0, 1, 2, 3), 4, id="one of them is taken"),
        pytest.param(range(8), range(1, 7), 4, id="more than requested"),
        pytest.param(range(1, 6), range(1, 7), 1, id="both"),
    ],
)
def test_must_include_that_cannot_be_is_known_facts(
    available: tuple[int, ...], must_include: tuple[int, ...], size: int
) -> None:
    """The kubelet may request what cannot be; the answer is a reason, never a lesser set."""
    found = select_set(
        _machine("dgx-1-v100"),
        available=mask_of(available),
        must_include=mask_of(must_include),
        size=size,
    )
    assert isinstance(found, Unfit)
    assert found.reason is UnfitReason.MUST_INCLUDE


@pytest.mark.parametrize("order", [(1, 1, 1, 1, 2, 2), (1, 1, 2, 1, 1, 2), (2, 1, 1, 1, 1, 2)])
def test_single_gpus_leave_the_bridged_pairs_whole(order: tuple[int, ...]) -> None:
    """NVIDIA k8s-device-plugin issue 546: random ids leave a bridged pair in 43 % of the cases."""
    bridges = {(0, 2): 12, (1, 3): 12, (4, 5): 12, (6, 7): 12}
    sockets = {PcieLevel.NODE: [range(4), range(4, 8)]}
    box = build_machine_by_hand(
        8, links=bridges, levels=sockets, models=["NVIDIA A100 80GB PCIe"] * 8
    )
    tables, free = build_tables(box), 0xFF
    for size in order:
        found = select_set(tables, available=free, size=size)
        assert isinstance(found, Selected)
        assert size == 1 or found.gpus in bridges
        free &= ~found.mask


V100, A100 = "Tesla V100-SXM2-32GB", "NVIDIA A100-SXM4-40GB"
PAIRS = build_machine_by_hand(
    6,
    links={(0, 1): 2, (2, 3): 1},
    levels={PcieLevel.PIX: [(0, 1), (2, 3)], PcieLevel.NODE: [(0, 1, 2, 3)]},
    near_nic=(0, 1),
)
HIDDEN_PCIE = build_machine_by_hand(4, links={(0, 1): 12, (2, 3): 12}, far=PcieLevel.UNKNOWN)
HIDDEN_LINKS = build_machine_by_hand(
    4, rest=UNKNOWN_LINK, levels={PcieLevel.NODE: [(0, 1), (2, 3)]}
)
TOLD_SOCKETS = build_machine_by_hand(4, far=PcieLevel.UNKNOWN, numa=[0, 0, 1, 1])
HALF_TOLD_SOCKETS = build_machine_by_hand(4, far=PcieLevel.UNKNOWN, numa=[0, 0, 1, None])
MIXED = build_machine_by_hand(4, models=[V100, V100, A100, None])


def _required(affinity: Affinity) -> PlacementPolicy:
    return PlacementPolicy(affinity=affinity, strength=Strength.REQUIRED)


def _at_least(bandwidth: float, nic: NicRule = NicRule.UNSET) -> PlacementPolicy:
    return PlacementPolicy(min_bandwidth_gbytes_per_s=bandwidth, nic=nic)


NIC_REQUIRED = PlacementPolicy(nic=NicRule.REQUIRED)


@pytest.mark.parametrize(("free", "size"), [(0b1011, 3), (0b1100, 2)])
def test_a_gpu_of_unknown_model_may_be_of_any(free, size):
    """A listing that names some GPUs says nothing of the others."""
    found = select_set(build_tables(MIXED), available=free, size=size, policy=DEFAULT_POLICY)
    assert isinstance(found, Selected)


@pytest.mark.parametrize(
    ("topology", "available", "size", "policy", "reason"),
    [
        pytest.param(
            PAIRS, 0b111111, 7, DEFAULT_POLICY, UnfitReason.TOO_FEW_GPUS, id="more than there are"
        ),
        pytest.param(
            PAIRS, 0b000111, 4, DEFAULT_POLICY, UnfitReason.NOT_ENOUGH_FREE, id="more than are free"
        ),
        pytest.param(
            MIXED, 0b1111, 4, DEFAULT_POLICY, UnfitReason.MIXED_MODELS, id="models never mix"
        ),
        pytest.param(
            MIXED,
            0b0110,
            2,
            DEFAULT_POLICY,
            UnfitReason.MIXED_MODELS,
            id="not even two of them",
        ),
        pytest.param(
            PAIRS,
            0b111111,
            3,
            _required(Affinity.NVLINK),
            UnfitReason.AFFINITY_NEVER,
            id="no three are linked, and all links are known",
        ),
        pytest.param(
            PAIRS,
            0b111010,
            2,
            _required(Affinity.NVLINK),
            UnfitReason.AFFINITY_TAKEN,
            id="each linked pair has lost a GPU to another pod",
        ),
        pytest.param(
            HIDDEN_LINKS,
            0b1111,
            2,
            _required(Affinity.NVLINK),
            UnfitReason.AFFINITY_UNKNOWN,
            id="a recording that says nothing about NVLink",
        ),
        pytest.param(
            HIDDEN_LINKS,
            0b1111,
            2,
            _required(Affinity.PCIE_SWITCH),
            UnfitReason.AFFINITY_NEVER,
            id="unknown links do not darken the PCIe levels",
        ),
        pytest.param(
            HIDDEN_LINKS,
            0b1111,
            3,
            _required(Affinity.NUMA),
            UnfitReason.AFFINITY_NEVER,
            id="unknown links do not darken the sockets",
        ),
        pytest.param(
            HIDDEN_PCIE,
            0b1111,
            3,
            _required(Affinity.NVLINK),
            UnfitReason.AFFINITY_NEVER,
            id="unknown PCIe levels do not darken the links",
        ),
        pytest.param(
            HIDDEN_PCIE,
            0b1111,
            2,
            _required(Affinity.PCIE_SWITCH),
            UnfitReason.AFFINITY_UNKNOWN,
            id="NV# hides the PCIe level",
        ),
        pytest.param(
            HIDDEN_PCIE,
            0b1111,
            2,
            _required(Affinity.NUMA),
            UnfitReason.AFFINITY_UNKNOWN,
            id="neither levels nor NUMA nodes are known",
        ),
        pytest.param(
            TOLD_SOCKETS,
            0b1111,
            3,
            _required(Affinity.NUMA),
            UnfitReason.AFFINITY_NEVER,
            id="known NUMA nodes settle what hidden levels leave open",
        ),
        pytest.param(
            HALF_TOLD_SOCKETS,
            0b1111,
            3,
            _required(Affinity.NUMA),
            UnfitReason.AFFINITY_UNKNOWN,
            id="the GPU without a NUMA node could be the third",
        ),
        pytest.param(
            PAIRS,
            0b111111,
            3,
            _required(Affinity.PCIE_SWITCH),
            UnfitReason.AFFINITY_NEVER,
            id="no switch has three",
        ),
        pytest.param(
            build_machine_by_hand(4),
            0b1111,
            2,
            NIC_REQUIRED,
            UnfitReason.NIC_NEVER,
            id="a machine without a NIC",
        ),
        pytest.param(
            replace(PAIRS, nics=tuple(replace(nic, is_rdma=None) for nic in PAIRS.nics)),
            0b111111,
            2,
            NIC_REQUIRED,
            UnfitReason.NIC_UNKNOWN,
            id="unknown port",
        ),
        pytest.param(
            PAIRS,
            0b111100,
            2,
            NIC_REQUIRED,
            UnfitReason.NIC_TAKEN,
            id="the GPUs by the NIC are taken",
        ),
        pytest.param(
            PAIRS, 0b111100, 1, NIC_REQUIRED, UnfitReason.NIC_TAKEN, id="one GPU needs the NIC too"
        ),
        pytest.param(
            PAIRS,
            0b111111,
            2,
            _at_least(1000.0),
            UnfitReason.BANDWIDTH_NEVER,
            id="faster than any pair",
        ),
        pytest.param(
            PAIRS,
            0b111110,
            2,
            _at_least(30.0),
            UnfitReason.BANDWIDTH_TAKEN,
            id="the double link is taken",
        ),
        pytest.param(
            PAIRS,
            0b111111,
            2,
            _at_least(49.0),
            UnfitReason.BANDWIDTH_NEVER,
            id="the stated error is subtracted",
        ),
        pytest.param(
            replace(PAIRS, nics=tuple(replace(nic, levels=nic.levels[::-1]) for nic in PAIRS.nics)),
            0b111111,
            2,
            _at_least(30.0, nic=NicRule.REQUIRED),
            UnfitReason.BANDWIDTH_NEVER,
            id="fast pairs and pairs by the NIC, none of them both",
        ),
        pytest.param(
            HIDDEN_LINKS,
            0b1111,
            2,
            _at_least(1.0),
            UnfitReason.BANDWIDTH_UNKNOWN,
            id="an unknown value never satisfies a lower bound",
        ),
    ],
)
def test_a_refusal_distinguishes_never_taken_and_unknown(
    topology: NodeTopology, available: int, size: int, policy: PlacementPolicy, reason: UnfitReason
) -> None:
    """A pod that waits for what this node can never give waits for ever."""
    found = select_set(build_tables(topology), available=available, size=size, policy=policy)
    assert isinstance(found, Unfit)
    assert found.reason is reason
    assert str(size) in found.detail


@pytest.mark.parametrize(
    ("nic", "affinity", "size", "expected"),
    [
        pytest.param(NicRule.UNSET, Affinity.ANY, 2, (0, 1), id="without a wish the fast pair"),
        pytest.param(NicRule.PREFERRED, Affinity.ANY, 2, (2, 3), id="a NIC before the value"),
        pytest.param(NicRule.REQUIRED, Affinity.ANY, 2, (2, 3), id="required"),
        pytest.param(NicRule.PREFERRED, Affinity.NUMA, 2, (0, 1), id="the affinity before the NIC"),
        pytest.param(NicRule.PREFERRED, Affinity.NONE, 1, (3,), id="a NIC before the remainder"),
    ],
)
def test_wishes_stand_in_their_order(
    nic: NicRule, affinity: Affinity, size: int, expected: tuple[int, ...]
) -> None:
    """The affinity is named first in the contract; the NIC goes before GB/s inside the node."""
    machine = build_machine_by_hand(
        4,
        links={(0, 1): 2, (2, 3): 1},
        levels={PcieLevel.NODE: [(0, 1)]},
        near_nic=(3,),
    )
    policy = PlacementPolicy(affinity=affinity, nic=nic)
    found = select_set(build_tables(machine), available=0b1111, size=size, policy=policy)
    assert isinstance(found, Selected)
    assert found.gpus == expected


@pytest.mark.parametrize(
    ("affinity", "floor", "expected"),
    [
        pytest.param(Affinity.ANY, None, (0, 1), id="the best set"),
        pytest.param(Affinity.ANY, 15.0, (2, 3), id="enough is enough: the best pair stays"),
        pytest.param(Affinity.NVLINK, 15.0, (0, 1), id="with an affinity still the best set"),
        pytest.param(Affinity.NONE, None, (4, 5), id="who does not care leaves the links"),
    ],
)
def test_a_minimum_bandwidth_leaves_the_best_set(
    affinity: Affinity, floor: float | None, expected: tuple[int, ...]
) -> None:
    """What a pod cannot use another one can."""
    policy = PlacementPolicy(affinity=affinity, min_bandwidth_gbytes_per_s=floor)
    found = select_set(build_tables(PAIRS), available=0b111111, size=2, policy=policy)
    assert isinstance(found, Selected)
    assert found.gpus == expected


@pytest.mark.parametrize(
    ("masks", "size", "error"),
    [
        pytest.param((0x100, 0), 1, UnknownDevice, id="available"),
        pytest.param((-1, 0), 1, UnknownDevice, id="negative"),
        pytest.param((1, 0x1FF), 1, UnknownDevice, id="must_include"),
        pytest.param((1, 0), 0, InvalidRequest, id="size"),
    ],
)
def test_impossible_input_is_an_error(
    masks: tuple[int, int], size: int, error: type[Exception], check_message: CheckMessage
) -> None:
    """A mask of GPUs that the node has not is a bug of the caller, not a full node."""
    with pytest.raises(error) as caught:
        select_set(_machine("dgx-1-v100"), available=masks[0], must_include=masks[1], size=size)
    check_message(caught.value)


def test_a_machine_of_17_is_packed_not_tabled() -> None:
    """Two to the seventeenth sets are out of reach; the call stays the same."""
    machine = build_machine(build_machine_by_hand(17))
    found = select_set(machine, available=machine.all_gpus, size=3, must_include=1 << 16)
    assert isinstance(found, Selected)
    assert 16 in found.gpus
    assert remainder_cost(machine, machine.all_gpus, found.mask) == found.remainder_cost_gpus
    assert isinstance(build_machine(build_machine_by_hand(16)), MachineTables)


@given(data=st.data(), name=st.sampled_from(["dgx-1-v100", "8x-a6000-bridged", "dgx-2"]))
@settings(max_examples=up_to(60))
def test_many_states_at_once_get_the_sets_of_each(data: st.DataObject, name: str) -> None:
    """They are looked at together for speed alone."""
    machine = _machine(name)
    frees = data.draw(st.lists(st.integers(0, machine.all_gpus), min_size=1, max_size=20))
    size = data.draw(st.sampled_from([1, 2, 3, 8, 17]))
    policy = data.draw(st.sampled_from(EVERY_POLICY))
    chosen = select_sets(machine, available=np.array(frees), size=size, policy=policy)
    for i, free in enumerate(frees):
        one = select_set(machine, available=free, size=size, policy=policy)
        assert chosen.masks[i] == (one.mask if isinstance(one, Selected) else 0)
        if isinstance(one, Selected):
            assert chosen.value_gbytes_per_s[i] == one.value_gbytes_per_s
            assert chosen.loss[i] == one.loss
            assert chosen.satisfies_affinity[i] == one.satisfies_affinity
            assert chosen.has_near_nic[i] == one.has_near_nic
            assert chosen.remainder_cost_gpus[i] == one.remainder_cost_gpus
