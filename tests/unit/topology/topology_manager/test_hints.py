"""The kubelet's hints, against a literal transcription of its algorithm."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.device_manager import NotAdmitted
from tests.topology_manager import Container, Kubelet, TopologyHint
from topology.annotations import DevicesReport, TopologyManagerPolicy, TopologyManagerScope
from topology.model import Gpu
from topology.recordings import load_recording
from topology.topology_manager import TopologyManager, manager_of
from topology.topology_manager.hints import (
    AllowedSets,
    Hint,
    NumaDevices,
    allowed_sets,
    best_hint,
    is_admitted,
    numa_devices,
)
from topology.value import gpus_of, mask_of

POLICIES = [one for one in TopologyManagerPolicy if one is not TopologyManagerPolicy.NONE]
EIGHT: tuple[int | None, ...] = (0, 0, 0, 0, 1, 1, 1, 1)
SIXTEEN: tuple[int | None, ...] = tuple(sorted([0, 1, 3, 5] * 4))
UNEVEN: tuple[int | None, ...] = (0, 0, 0, 1, 2, 2, None, None)
BLIND: tuple[int | None, ...] = (None,) * 4


def _devices(numa: tuple[int | None, ...]) -> NumaDevices:
    nodes = sorted({node for node in numa if node is not None})
    return NumaDevices(
        tuple((node, mask_of(i for i, at in enumerate(numa) if at == node)) for node in nodes)
    )


def _kubelet(numa, policy=TopologyManagerPolicy.BEST_EFFORT, scope="container", free=0):
    nodes = sorted({node for node in numa if node is not None}) or [0]
    return Kubelet(policy.value, scope, numa, nodes, healthy=set(gpus_of(free)))


def _check(numa, free: int, reusable: int, size: int) -> None:
    """One hint, as the kubelet merges it, whatever the policy makes of it."""
    kubelet = _kubelet(numa)
    hints = kubelet.generate_hints(set(gpus_of(free)), set(gpus_of(reusable)), size)
    merged, _ = kubelet.merge([{"gpu": hints}, {}])
    found = best_hint(_devices(numa), free=free, reusable=reusable, size=size)
    case = f"{numa}: {size} of {free:b}, reuse {reusable:b}"
    assert TopologyHint(mask_of(found.nodes), preferred=found.is_preferred) == merged, case
    assert found.devices == mask_of(i for i, at in enumerate(numa) if at in found.nodes), case


def test_hints_of_every_free_mask_on_8_gpus_and_2_numa_nodes_are_the_kubelets():
    """All that there is on the most common machine."""
    for free in range(256):
        for size in range(1, 9):
            _check(EIGHT, free, 0, size)


@pytest.mark.parametrize("numa", [EIGHT, SIXTEEN, UNEVEN], ids=["8x2", "16x4", "uneven"])
def test_hints_with_devices_to_reuse_are_the_kubelets(numa):
    """What init containers leave widens a hint, also where not all NUMA nodes are known."""
    rng = random.Random(7)  # noqa: S311 - the same cases in each run
    for _ in range(1500):
        every = (1 << len(numa)) - 1
        reusable = rng.randrange(1 << len(numa)) & rng.randrange(1 << len(numa))
        free = rng.randrange(1 << len(numa)) & every & ~reusable
        _check(numa, free, reusable, rng.randint(1, len(numa)))


def _room_by_call(kubelet: Kubelet, size: int) -> AllowedSets | None:
    """What the kubelet leaves open, found by its own call to the plugin."""
    calls: list[tuple[set[int], set[int]]] = []

    def plugin(_name, available, must, _size):
        calls.append((available, must))
        return available

    try:
        given = kubelet.admit([Container("c", size)], plugin)["c"]
    except NotAdmitted:
        return None
    if not calls:
        return AllowedSets(mask_of(given), mask_of(given))
    ((available, must),) = calls
    return AllowedSets(mask_of(must), mask_of(available))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("numa", [EIGHT, UNEVEN, BLIND], ids=["8x2", "uneven", "no NUMA known"])
def test_allowed_sets_are_those_of_the_kubelets_call_to_the_plugin(policy, numa):
    """And a refusal is the kubelet's; every free mask."""
    numa_ = _devices(numa)
    for free in range(1 << len(numa)):
        for size in range(1, free.bit_count() + 1):
            hint = best_hint(numa_, free=free, size=size)
            expected = _room_by_call(_kubelet(numa, policy, free=free), size)
            case = f"{size} of {free:b}"
            if expected is None:
                assert not is_admitted(policy, hint), case
                continue
            assert is_admitted(policy, hint), case
            assert allowed_sets(hint, free=free, size=size) == expected, case


def test_one_numa_node_is_confined_where_the_kubelet_leaves_it_open():
    """The one known difference, on the safe side: GPUs of an unknown NUMA node are not planned."""
    numa = (0, 0, None)
    policy = TopologyManagerPolicy.SINGLE_NUMA_NODE
    hint = best_hint(_devices(numa), free=0b111, size=1)
    assert allowed_sets(hint, free=0b111, size=1) == AllowedSets(0, 0b011)
    assert _room_by_call(_kubelet(numa, policy, free=0b111), 1) == AllowedSets(0, 0b111)


def test_more_to_reuse_than_needed_needs_no_call():
    """The kubelet takes some of it, in the order of a map."""
    room = allowed_sets(Hint((0,), 0b1111, is_preferred=True), free=0b1100, reusable=0b0011, size=1)
    assert room == AllowedSets(0, 0b0011)
    assert [gpu for gpu in range(4) if room.holds(1 << gpu)] == [0, 1]


def test_room_includes_all_that_must_be_held():
    """A set without a device that comes anyway cannot be had."""
    room = AllowedSets(must=0b011, allowed=0b111)
    assert room.holds(0b111)
    assert not room.holds(0b101)
    assert not room.holds(0b1011)


def test_many_numa_nodes_are_no_burden():
    """A machine where every device is a NUMA node of its own has 2**64 sets of them."""
    numa = NumaDevices(tuple((node, 1 << node) for node in range(64)))
    found = best_hint(numa, free=(1 << 64) - 1 & ~0b101, size=40)
    assert found.nodes == (1, *range(3, 42))
    assert found.is_preferred


def test_numa_devices_are_read_from_the_topology():
    """Device i is GPU i; who has no NUMA node is nowhere."""
    topology = load_recording("dgx-1-v100")
    assert numa_devices(topology).nodes == ((0, 0x0F), (1, 0xF0))
    gpus = tuple(replace(gpu, numa_node=None) for gpu in topology.gpus[:7])
    some = replace(topology, gpus=(*gpus, Gpu(numa_node=3)))
    assert numa_devices(some) == NumaDevices(((3, 0x80),))
    assert numa_devices(some).devices == 0x80


@pytest.mark.parametrize(
    ("policy", "scope", "expected"),
    [
        (None, None, None),
        (None, TopologyManagerScope.POD, None),
        (TopologyManagerPolicy.NONE, TopologyManagerScope.POD, None),
        (
            TopologyManagerPolicy.RESTRICTED,
            TopologyManagerScope.POD,
            TopologyManager(TopologyManagerPolicy.RESTRICTED, TopologyManagerScope.POD),
        ),
        (
            TopologyManagerPolicy.BEST_EFFORT,
            None,
            TopologyManager(TopologyManagerPolicy.BEST_EFFORT, TopologyManagerScope.CONTAINER),
        ),
    ],
    ids=["nothing known", "scope alone", "none", "both", "the kubelet's own default scope"],
)
def test_manager_of_a_report(policy, scope, expected):
    """Policy none, or an unknown one, is today's behaviour."""
    assert manager_of(DevicesReport(policy=policy, scope=scope)) == expected
