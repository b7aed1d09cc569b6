"""More than 16 devices: exact where links are equal, bounded and never false elsewhere."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import topology.value.set_value
from tests.examples import up_to
from tests.machine_strategies import build_machine_by_hand, policies
from topology.annotations import DEFAULT_POLICY, Affinity, NicRule, PlacementPolicy, Strength
from topology.model import UNKNOWN_LINK, Nic, P2pAccess, PcieLevel, SwitchFabric
from topology.select import (
    Criterion,
    Selected,
    Unfit,
    UnfitReason,
    build_machine,
    find_runner_up,
    select_set,
)
from topology.select.large_machine import LargeMachine, large_machine
from topology.select.outcome import SetRequest
from topology.select.selection import describe_set, qualifying_sets
from topology.value import Demand, gpus_of, mask_of
from topology.value.machine_graph import machine_graph
from topology.value.set_value import set_value

if TYPE_CHECKING:
    from collections.abc import Iterable

    import networkx as nx

    from topology.model import NodeTopology
    from topology.value.machine_graph import Vertex
    from topology.value.set_value import SetValue

V100, A100 = "Tesla V100-SXM2-32GB", "NVIDIA A100-SXM4-40GB"


def _parents(n: int, each: int) -> list[str]:
    return [f"GPU-{i // each}" for i in range(n)]


def _mesh() -> NodeTopology:
    """32 GPUs in four rings of eight, one of them wide, joined by single links, on two sockets."""
    rings = {
        (8 * g + min(i, (i + 1) % 8), 8 * g + max(i, (i + 1) % 8)): 1 + 2 * (g == 2)
        for g in range(4)
        for i in range(8)
    }
    bridges = {(8 * g, 8 * g + 8): 1 for g in range(3)}
    return build_machine_by_hand(
        32,
        links={**rings, **bridges},
        levels={PcieLevel.NODE: [range(16), range(16, 32)]},
        numa=[0] * 16 + [1] * 16,
        near_nic=range(24, 32),
    )


MACHINES = {
    "56 MIG slices": build_machine_by_hand(56, parents=_parents(56, 7)),
    "56 MIG slices below switches": build_machine_by_hand(
        56,
        parents=_parents(56, 7),
        levels={
            PcieLevel.PIX: [range(7 * g, 7 * g + 7) for g in range(8)],
            PcieLevel.PXB: [range(14 * g, 14 * g + 14) for g in range(4)],
            PcieLevel.NODE: [range(28), range(28, 56)],
        },
        near_nic=range(14, 28),
    ),
    "40 replicas": build_machine_by_hand(40, parents=_parents(40, 10), far=PcieLevel.PIX),
    "72 GPUs on one fabric": build_machine_by_hand(
        72,
        fabrics=(SwitchFabric(ports=tuple((i, 18) for i in range(72))),),
        levels={PcieLevel.NODE: [range(4 * g, 4 * g + 4) for g in range(18)]},
        models=["NVIDIA GB200"] * 72,
        near_nic=(70, 71),
    ),
    "mesh of 32": _mesh(),
    "two models": build_machine_by_hand(20, models=[V100] * 12 + [A100] * 8),
}


@cache
def _machine(name: str) -> LargeMachine:
    return large_machine(MACHINES[name])


def _select(
    machine: LargeMachine,
    size: int,
    *,
    taken: Iterable[int] = (),
    must_include: Iterable[int] = (),
    policy: PlacementPolicy | None = None,
) -> Selected:
    found = select_set(
        machine,
        available=machine.all_gpus & ~mask_of(taken),
        must_include=mask_of(must_include),
        size=size,
        policy=policy or PlacementPolicy(),
    )
    assert isinstance(found, Selected), found
    return found


def _refuse(
    machine: LargeMachine, size: int, policy: PlacementPolicy, taken: Iterable[int] = ()
) -> Unfit:
    free = machine.all_gpus & ~mask_of(taken)
    found = select_set(machine, available=free, size=size, policy=policy)
    assert isinstance(found, Unfit), found
    return found


@pytest.mark.parametrize(
    ("name", "is_even"),
    [
        ("56 MIG slices", True),
        ("56 MIG slices below switches", False),
        ("40 replicas", True),
        ("72 GPUs on one fabric", True),
        ("mesh of 32", False),
    ],
)
def test_even_machines_are_recognised(name: str, is_even: bool) -> None:
    """On them nothing but packing is left to choose, so no set is searched for."""
    assert _machine(name).is_even is is_even


@pytest.mark.parametrize(
    ("topology", "is_even"),
    [
        pytest.param(
            build_machine_by_hand(20, far=PcieLevel.UNKNOWN, numa=[0] * 10 + [1] * 10),
            False,
            id="two sockets are not even, whatever the levels say",
        ),
        pytest.param(
            build_machine_by_hand(18, models=[V100] * 9 + ["NVIDIA H100 PCIe"] * 9),
            False,
            id="two kinds of PCIe port",
        ),
        pytest.param(
            build_machine_by_hand(
                18,
                fabrics=(SwitchFabric(ports=tuple((i, 18 - (i == 3)) for i in range(18))),),
            ),
            False,
            id="one GPU has lost a link to the switch",
        ),
        pytest.param(
            build_machine_by_hand(
                18, fabrics=(SwitchFabric(ports=tuple((i, 18) for i in range(9))),)
            ),
            False,
            id="a fabric of half the machine",
        ),
    ],
)
def test_uneven_machines_are_recognised(topology: NodeTopology, is_even: bool) -> None:
    """A wrong "even" would take any set for the best."""
    assert large_machine(topology).is_even is is_even


EVEN = {
    **{name: one for name, one in MACHINES.items() if _machine(name).is_even},
    "20 GPUs without P2P below one switch": replace(
        build_machine_by_hand(20, far=PcieLevel.PXB), p2p=P2pAccess.NO
    ),
    "18 GPUs without links, one on a fabric of the rack": build_machine_by_hand(
        18, far=PcieLevel.PXB, fabrics=(SwitchFabric(ports=((0, 18),)),)
    ),
    "18 sockets": build_machine_by_hand(18, far=PcieLevel.SYS),
}


@pytest.mark.parametrize("name", EVEN)
@pytest.mark.parametrize("size", [2, 3, 9])
def test_on_an_even_machine_every_set_has_the_same_value(name: str, size: int) -> None:
    """This is what makes packing exact there, and its value known without a graph."""
    machine = large_machine(EVEN[name])
    n = machine.n_gpus
    assert machine.is_even
    spread = [
        mask_of((start + step * k) % n for k in range(size)) for start in (0, 5) for step in (1, 7)
    ]
    graph = machine_graph(EVEN[name])
    values = {set_value(graph, gpus_of(mask)) for mask in spread}
    assert len(values) == 1
    (found,) = values
    value, limit = machine.b_inf(spread[0])
    assert value == pytest.approx(found.value_gbytes_per_s)
    assert limit is found.limit
    assert _select(machine, size).loss == 0


@pytest.mark.parametrize(
    ("name", "size", "taken", "must_include", "expected"),
    [
        pytest.param(
            "56 MIG slices", 1, [8], (), (7,), id="a slice of the GPU that is partly used"
        ),
        pytest.param(
            "56 MIG slices below switches", 1, [8], (), (7,), id="the same where switches show"
        ),
        pytest.param(
            "56 MIG slices below switches",
            3,
            [8],
            (),
            (7, 9, 10),
            id="equal sets: the partly used GPU here too",
        ),
        pytest.param(
            "56 MIG slices", 3, range(9, 14), (), (0, 1, 2), id="two slices are too few for three"
        ),
        pytest.param(
            "56 MIG slices", 6, [8], (), (7, 9, 10, 11, 12, 13), id="the tightest that holds it"
        ),
        pytest.param(
            "56 MIG slices",
            9,
            [0, 1, 2, 8],
            (),
            (3, 4, *range(14, 21)),
            id="a whole GPU first, the rest from the tightest",
        ),
        pytest.param("40 replicas", 2, [0], (), (1, 2), id="replicas of one parent together"),
        pytest.param("40 replicas", 2, (), [25], (20, 25), id="the parent that must be included"),
        pytest.param(
            "40 replicas", 12, (), [25], (0, 1, *range(20, 30)), id="its parent whole, then another"
        ),
        pytest.param(
            "72 GPUs on one fabric", 4, [0], (), (4, 5, 6, 7), id="a whole tray, not a broken one"
        ),
        pytest.param("72 GPUs on one fabric", 3, [4], (), (5, 6, 7), id="the broken tray fits"),
        pytest.param(
            "72 GPUs on one fabric",
            6,
            [0, 4, 5],
            (),
            (6, 7, 8, 9, 10, 11),
            id="whole trays first when bigger, then the tightest",
        ),
        pytest.param("72 GPUs on one fabric", 72, (), (), tuple(range(72)), id="the whole rack"),
    ],
)
def test_equal_devices_are_packed(
    name: str,
    size: int,
    taken: Iterable[int],
    must_include: Iterable[int],
    expected: tuple[int, ...],
) -> None:
    """Whole GPUs, trays and switches stay free for those who need them whole."""
    assert _select(_machine(name), size, taken=taken, must_include=must_include).gpus == expected


@pytest.mark.parametrize(
    ("taken", "must_include", "size", "expected"),
    [
        pytest.param((), (), 8, tuple(range(8)), id="lowest ids, which links join"),
        pytest.param((), (20,), 2, (19, 20), id="a linked neighbour"),
        pytest.param((1, 7), (), 3, (2, 3, 4), id="not with GPU 0, which has lost its neighbours"),
        pytest.param(range(2, 7), (), 4, (0, 1, 7, 8), id="over a bridge, when links go no nearer"),
        pytest.param(range(16, 32), (), 16, tuple(range(16)), id="all that is free"),
    ],
)
def test_a_set_of_a_mesh_is_joined_by_links(
    taken: Iterable[int], must_include: Iterable[int], size: int, expected: tuple[int, ...]
) -> None:
    """Packing by PCIe alone would take GPUs without a link between them."""
    found = _select(_machine("mesh of 32"), size, taken=taken, must_include=must_include)
    assert found.gpus == expected


def test_a_worse_set_is_reported_as_worse() -> None:
    """Beside what is packed on the empty machine: without links there is a part of it left."""
    found = _select(_machine("mesh of 32"), 2, must_include=(3, 30))
    assert found.loss > 0.2
    assert found.value_class == 1


def test_few_sets_are_rated(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of each part that is looked at, and one of the empty machine: work, not time."""
    rated: list[int] = []

    def noted(graph: nx.Graph[Vertex], gpus: Iterable[int]) -> SetValue:
        rated.append(mask_of(gpus))
        return set_value(graph, gpus)

    monkeypatch.setattr(topology.value.set_value, "set_value", noted)
    machine = large_machine(_mesh())
    _select(machine, 6, policy=PlacementPolicy(affinity=Affinity.NUMA))
    assert 0 < len(rated) <= 4


@given(data=st.data(), name=st.sampled_from(sorted(MACHINES)), policy=policies())
@settings(max_examples=up_to(60))
def test_a_result_lies_inside_and_holds_what_it_must(
    data: st.DataObject, name: str, policy: PlacementPolicy
) -> None:
    """Same contract as up to 16; the next sets are no better in what the pod wishes first."""
    machine = _machine(name)
    available = data.draw(st.integers(1, machine.all_gpus))
    must = data.draw(st.sets(st.integers(0, machine.n_gpus - 1), max_size=3))
    must_include = mask_of(must) & available
    most = min(available.bit_count(), 8)
    size = data.draw(st.integers(max(1, must_include.bit_count()), max(most, len(must), 1)))
    found = select_set(
        machine, available=available, must_include=must_include, size=size, policy=policy
    )
    if isinstance(found, Unfit):
        assert found.detail
        return
    ranked = list(qualifying_sets(machine, SetRequest(available, size, must_include, policy)))
    assert ranked[0] == found.mask
    assert len(set(ranked)) == len(ranked)
    for mask in ranked:
        assert mask & ~available == 0
        assert must_include & ~mask == 0
        assert mask.bit_count() == size
        one = describe_set(machine, mask, available=available, policy=policy)
        assert one.satisfies_affinity or policy.strength is Strength.PREFERRED
        assert policy.nic is not NicRule.REQUIRED or mask & machine.near_rdma
        assert one.satisfies_affinity <= found.satisfies_affinity
        models = {machine.topology.gpus[gpu].model for gpu in one.gpus}
        assert len(models) == 1 or policy.affinity is Affinity.NONE
    assert found == select_set(
        large_machine(MACHINES[name]) if machine.is_even else machine,
        available=available,
        must_include=must_include,
        size=size,
        policy=policy,
    )


def _required(affinity: Affinity) -> PlacementPolicy:
    return PlacementPolicy(affinity=affinity, strength=Strength.REQUIRED)


@pytest.mark.parametrize(
    ("name", "size", "policy", "taken", "inside"),
    [
        pytest.param(
            "56 MIG slices below switches",
            10,
            _required(Affinity.PCIE_SWITCH),
            range(5),
            range(14, 28),
            id="one switch tree, nested switches and all",
        ),
        pytest.param(
            "56 MIG slices below switches",
            20,
            _required(Affinity.NUMA),
            range(28, 31),
            range(28, 56),
            id="the socket with fewer free devices",
        ),
        pytest.param(
            "mesh of 32",
            10,
            _required(Affinity.NVLINK),
            range(7, 25),
            (),
            id="connected links, however slow",
        ),
        pytest.param(
            "mesh of 32",
            4,
            PlacementPolicy(nic=NicRule.REQUIRED),
            (),
            range(24, 32),
            id="a set with a NIC though others are faster",
        ),
        pytest.param(
            "56 MIG slices below switches",
            2,
            PlacementPolicy(nic=NicRule.PREFERRED),
            (),
            range(14, 28),
            id="a wished NIC on equal devices",
        ),
        pytest.param(
            "mesh of 32",
            8,
            PlacementPolicy(min_bandwidth_gbytes_per_s=10.0),
            (),
            range(8),
            id="a ring that is fast enough",
        ),
    ],
)
def test_conditions_and_wishes_are_met(
    name: str, size: int, policy: PlacementPolicy, taken: Iterable[int], inside: Iterable[int]
) -> None:
    """A set that exists is found, even where packing or speed alone would not lead to it."""
    if name == "mesh of 32" and policy.affinity is Affinity.NVLINK:
        assert isinstance(_refuse(_machine(name), size, policy, taken), Unfit)
        taken = range(18, 32)
    found = _select(_machine(name), size, policy=policy, taken=taken)
    assert found.satisfies_affinity
    if inside:
        hits = set(found.gpus) & set(inside)
        assert hits if policy.nic is not NicRule.UNSET else hits == set(found.gpus)


def test_a_nic_far_from_the_tightest_group_is_reached() -> None:
    """Packing alone would take tray 0 and find no NIC there."""
    rack = _machine("72 GPUs on one fabric")
    for nic in (NicRule.PREFERRED, NicRule.REQUIRED):
        found = _select(rack, 4, policy=PlacementPolicy(nic=nic))
        assert found.gpus == (68, 69, 70, 71)
    found = _select(rack, 2, must_include=[0, 9], policy=PlacementPolicy(nic=NicRule.PREFERRED))
    assert found.gpus == (0, 9)


DARK_LINKS = build_machine_by_hand(20, rest=UNKNOWN_LINK)
DARK_PCIE = build_machine_by_hand(20, far=PcieLevel.UNKNOWN)


@pytest.mark.parametrize(
    ("topology", "size", "policy", "taken", "reason"),
    [
        pytest.param(
            MACHINES["two models"],
            13,
            PlacementPolicy(),
            (),
            UnfitReason.MIXED_MODELS,
            id="models never mix",
        ),
        pytest.param(
            MACHINES["mesh of 32"],
            17,
            _required(Affinity.NUMA),
            (),
            UnfitReason.AFFINITY_NEVER,
            id="no socket has 17",
        ),
        pytest.param(
            MACHINES["mesh of 32"],
            16,
            _required(Affinity.NUMA),
            (0, 31),
            UnfitReason.AFFINITY_TAKEN,
            id="both sockets had 16",
        ),
        pytest.param(
            MACHINES["56 MIG slices"],
            2,
            _required(Affinity.NVLINK),
            (),
            UnfitReason.AFFINITY_NEVER,
            id="slices have no links",
        ),
        pytest.param(
            DARK_LINKS,
            2,
            _required(Affinity.NVLINK),
            (),
            UnfitReason.AFFINITY_UNKNOWN,
            id="unknown links",
        ),
        pytest.param(
            DARK_LINKS,
            2,
            _required(Affinity.NVLINK),
            (0,),
            UnfitReason.AFFINITY_UNKNOWN,
            id="nor with one GPU taken",
        ),
        pytest.param(
            DARK_PCIE,
            2,
            _required(Affinity.PCIE_SWITCH),
            (),
            UnfitReason.AFFINITY_UNKNOWN,
            id="unknown switches",
        ),
        pytest.param(
            DARK_PCIE,
            2,
            _required(Affinity.NVLINK),
            (),
            UnfitReason.AFFINITY_NEVER,
            id="unknown levels do not darken the links",
        ),
        pytest.param(
            MACHINES["two models"],
            2,
            PlacementPolicy(nic=NicRule.REQUIRED),
            (),
            UnfitReason.NIC_NEVER,
            id="a machine without a NIC",
        ),
        pytest.param(
            replace(
                MACHINES["72 GPUs on one fabric"],
                nics=(Nic("eth0", (PcieLevel.PIX,) * 72),),
            ),
            2,
            PlacementPolicy(nic=NicRule.REQUIRED),
            (),
            UnfitReason.NIC_UNKNOWN,
            id="unknown port",
        ),
        pytest.param(
            MACHINES["72 GPUs on one fabric"],
            2,
            PlacementPolicy(nic=NicRule.REQUIRED),
            (70, 71),
            UnfitReason.NIC_TAKEN,
            id="the GPUs by the NIC are taken",
        ),
        pytest.param(
            MACHINES["mesh of 32"],
            4,
            PlacementPolicy(min_bandwidth_gbytes_per_s=500.0),
            (),
            UnfitReason.BANDWIDTH_UNKNOWN,
            id="faster than what is packed, and not all sets are compared",
        ),
        pytest.param(
            MACHINES["mesh of 32"],
            8,
            PlacementPolicy(min_bandwidth_gbytes_per_s=20.0),
            (1, 9, 17, 25),
            UnfitReason.BANDWIDTH_TAKEN,
            id="each ring has lost a GPU to another pod",
        ),
        pytest.param(
            DARK_PCIE,
            2,
            PlacementPolicy(min_bandwidth_gbytes_per_s=1.0),
            (),
            UnfitReason.BANDWIDTH_UNKNOWN,
            id="an unknown value never satisfies a lower bound",
        ),
        pytest.param(
            MACHINES["56 MIG slices"],
            2,
            PlacementPolicy(min_bandwidth_gbytes_per_s=500.0),
            (),
            UnfitReason.BANDWIDTH_NEVER,
            id="faster than any of equal sets",
        ),
        pytest.param(
            MACHINES["two models"],
            21,
            PlacementPolicy(),
            (),
            UnfitReason.TOO_FEW_GPUS,
            id="more than there are",
        ),
    ],
)
def test_a_refusal_distinguishes_never_taken_and_unknown(
    topology: NodeTopology,
    size: int,
    policy: PlacementPolicy,
    taken: Iterable[int],
    reason: UnfitReason,
) -> None:
    """Same reasons as up to 16."""
    assert _refuse(large_machine(topology), size, policy, taken).reason is reason


def test_a_pod_without_affinity_may_get_two_models() -> None:
    """13 of 20 are more than either model has."""
    found = _select(_machine("two models"), 13, policy=PlacementPolicy(affinity=Affinity.NONE))
    assert len(found.gpus) == 13


@pytest.mark.parametrize("affinity", Affinity)
def test_one_device_satisfies_every_required_affinity(affinity: Affinity) -> None:
    """One device is close to itself."""
    found = _select(large_machine(DARK_LINKS), 1, policy=_required(affinity))
    assert (found.satisfies_affinity, found.value_gbytes_per_s) == (True, 0.0)


@pytest.mark.parametrize(
    ("demand", "size", "cost"),
    [
        pytest.param(Demand(((1, 1.0),)), 5, 5.0, id="single devices count themselves"),
        pytest.param(Demand(((4, 1.0),)), 2, 56 / 14, id="a quad less"),
        pytest.param(Demand(((64, 1.0),)), 7, 7.0, id="no demand that fits: free devices"),
    ],
)
def test_what_is_left_behind_counts_whole_sets(demand: Demand, size: int, cost: float) -> None:
    """Exact on an even machine: P_d is floor(free / d)."""
    machine = large_machine(MACHINES["56 MIG slices"], demand)
    assert _select(machine, size).remainder_cost_gpus == pytest.approx(cost)


WISHES = PlacementPolicy(affinity=Affinity.NVLINK, nic=NicRule.PREFERRED)


@pytest.mark.parametrize(
    ("name", "free", "size", "policy", "expected", "criterion"),
    [
        pytest.param(
            "56 MIG slices", range(56), 3, "any", (0, 1, 3), "packing", id="a slice beside"
        ),
        pytest.param(
            "72 GPUs on one fabric", range(72), 4, "any", (4, 5, 6, 7), "packing", id="another tray"
        ),
        pytest.param(
            "72 GPUs on one fabric", (0, 70), 1, "wishes", (0,), "nic", id="without a NIC"
        ),
        pytest.param("mesh of 32", (0, 1, 9), 2, "wishes", (0, 9), "affinity", id="unlinked"),
        pytest.param("mesh of 32", (0, 1, 16, 17), 2, "any", (0, 1), "value", id="a narrow ring"),
    ],
)
def test_the_first_difference_to_the_runner_up_decides(
    name: str,
    free: Iterable[int],
    size: int,
    policy: str,
    expected: tuple[int, ...],
    criterion: str,
) -> None:
    """Wishes, then the value, then which groups are filled."""
    machine = _machine(name)
    found = find_runner_up(
        machine,
        available=mask_of(free),
        size=size,
        policy=WISHES if policy == "wishes" else DEFAULT_POLICY,
    )
    assert found is not None
    assert (found.gpus, found.decided_by) == (expected, Criterion(criterion))
    assert (found.figures is not None) is (criterion == "value")


@pytest.mark.parametrize(
    ("name", "n_free"),
    [("56 MIG slices", 4), ("mesh of 32", 4), ("mesh of 32", 3)],
    ids=["even", "uneven", "unfit"],
)
def test_a_single_set_has_no_runner_up(name: str, n_free: int) -> None:
    """All free GPUs, or fewer than requested."""
    assert find_runner_up(_machine(name), available=(1 << n_free) - 1, size=4) is None


def test_only_the_best_set_has_a_next_one_here() -> None:
    """The search compares sets with the best one, and with no other."""
    machine = _machine("56 MIG slices")
    best = select_set(machine, available=machine.all_gpus, size=2)
    assert isinstance(best, Selected)
    free = machine.all_gpus
    found = find_runner_up(machine, available=free, size=2, chosen=best.mask)
    assert found == find_runner_up(machine, available=free, size=2)
    other = 1 << 3 | 1 << 40
    assert find_runner_up(machine, available=free, size=2, chosen=other) is None


def test_a_loss_is_against_the_machine_with_all_links_up() -> None:
    """As in the tables of smaller machines, at the bound between the two."""
    losses: list[float] = []
    for n in (16, 18):
        fabric = SwitchFabric(tuple((i, 18 if i < n - 1 else 9) for i in range(n)))
        topology = build_machine_by_hand(n, models=["NVIDIA H100 80GB HBM3"] * n, fabrics=(fabric,))
        built = build_machine(topology)
        found = select_set(built, available=built.all_gpus, size=n)
        assert isinstance(found, Selected)
        losses.append(found.loss)
    assert losses[1] == pytest.approx(losses[0], abs=0.01)
    assert losses[0] > 0.4
