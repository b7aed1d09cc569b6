"""Tests of `plugin.allocation.packing`."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.allocation.packing import DevicePool, pack, physical_id
from plugin.machine import SharedPolicy
from tests.unit.plugin.node_values import gpus, instances, replicas

PACKED, DISTRIBUTED = SharedPolicy.PACKED, SharedPolicy.DISTRIBUTED


def pool(resource, *held: str, unusable=(), busy=()) -> DevicePool:
    """All that no container holds."""
    ids = {device.id for device in resource.devices}
    return DevicePool(
        resource.devices,
        usable=frozenset(ids - set(held) - set(unusable)),
        held=frozenset(held),
        busy_gpus=frozenset(busy),
    )


def picked(pool_, size: int, *must: str, policy=DISTRIBUTED) -> list[str]:
    """What is chosen, in the order of choice."""
    return list(pack(pool_, must_include=frozenset(must), size=size, policy=policy))


@pytest.mark.parametrize(
    ("resource", "held", "size", "must", "expected"),
    [
        pytest.param(gpus("a", "b", "c"), [], 2, [], ["a", "b"], id="GPUs in order"),
        pytest.param(gpus("a", "b", "c"), ["a"], 2, ["c"], ["c", "b"], id="what must be, first"),
        pytest.param(
            instances(3, 3), ["M1-0"], 1, [], ["M1-1"], id="a GPU in use before a whole one"
        ),
        pytest.param(
            instances(4, 4, 4),
            ["M0-0", "M2-0", "M2-1"],
            1,
            [],
            ["M2-2"],
            id="of those in use the one with the fewest left",
        ),
        pytest.param(instances(2, 4, 3), [], 3, [], ["M2-0", "M2-1", "M2-2"], id="best fit"),
        pytest.param(
            instances(2, 3, 2), [], 4, [], ["M1-0", "M1-1", "M1-2", "M0-0"], id="largest first"
        ),
        pytest.param(instances(1, 4), [], 2, ["M1-1"], ["M1-1", "M1-0"], id="beside what must be"),
    ],
)
def test_whole_devices_and_instances(resource, held, size, must, expected):
    """MIG packs, so that whole GPUs stay whole."""
    assert picked(pool(resource, *held), size, *must) == expected


def test_a_gpu_that_another_profile_uses_is_open_already():
    """A container of another resource is on it; whole GPUs elsewhere stay whole."""
    assert picked(pool(instances(2, 2), busy=["G1"]), 1) == ["M1-0"]


def test_what_may_be_chosen_is_computed_once():
    """For each replica it would take seconds on a machine with thousands."""
    n_differences = 0

    class Ids(frozenset[str]):
        def __sub__(self, other):
            nonlocal n_differences
            n_differences += 1
            return super().__sub__(other)

    devices = gpus("a", "b", "c").devices
    usable = Ids(device.id for device in devices)
    assert picked(DevicePool(devices, usable=usable), 2, "b") == ["b", "a"]
    assert n_differences == 1


@pytest.mark.parametrize(
    ("held", "size", "must", "policy", "expected"),
    [
        ([], 1, [], DISTRIBUTED, ["a::0"]),
        (["a::0"], 1, [], DISTRIBUTED, ["b::0"]),
        (["a::0"], 1, [], PACKED, ["a::1"]),
        (["a::0", "b::0", "b::1"], 2, [], DISTRIBUTED, ["c::0", "a::1"]),
        (["b::0", "b::1"], 2, [], PACKED, ["b::2", "a::0"]),
        ([], 4, [], DISTRIBUTED, ["a::0", "b::0", "c::0", "a::1"]),
        ([], 2, ["a::2"], PACKED, ["a::2", "b::0"]),
    ],
)
def test_replicas(held, size, must, policy, expected):
    """Spread or packed as NVIDIA's policies say, but no device twice while others are left."""
    assert picked(pool(replicas(3, "a", "b", "c"), *held), size, *must, policy=policy) == expected


def test_a_replica_is_of_a_device():
    """The uuid itself may hold colons: no source excludes it."""
    assert physical_id(replicas(1, "a::b").devices[0]) == "a::b"
    assert physical_id(gpus("a::1").devices[0]) == "a::1"


@given(
    counts=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    chance=st.randoms(use_true_random=False),
)
def test_no_set_opens_fewer_gpus(counts, chance):
    """Compared with all sets of the size that hold what must be included."""
    resource = instances(*counts)
    ids = [device.id for device in resource.devices]
    held = [one for one in ids if chance.random() < 0.2]
    unusable = [one for one in ids if chance.random() < 0.1]
    pool_ = pool(resource, *held, unusable=unusable, busy=chance.sample(["G0", "G1"], 1))
    usable = sorted(pool_.usable)
    must = chance.sample(usable, min(len(usable), chance.choice([0, 0, 1, 2])))
    size = chance.randint(len(must), len(usable))
    chosen = picked(pool_, size, *must)
    assert len(set(chosen)) == len(chosen) == size
    assert set(must) <= set(chosen) <= pool_.usable
    assert pack(pool_, must_include=frozenset(must), size=size) == tuple(chosen)
    gpu_of = {device.id: device.gpu.uuid for device in resource.devices}
    in_use = {gpu_of[one] for one in (*held, *must)} | pool_.busy_gpus

    def opened(some) -> int:
        return len({gpu_of[one] for one in some} - in_use)

    rest = [one for one in usable if one not in must]
    assert opened(chosen) == min(map(opened, combinations(rest, size - len(must))), default=0)


@given(
    count=st.integers(1, 4),
    n=st.integers(1, 4),
    policy=st.sampled_from(SharedPolicy),
    chance=st.randoms(use_true_random=False),
)
def test_no_device_is_twice_in_a_set_while_another_is_left(count, n, policy, chance):
    """A container that requests two replicas needs two GPUs, if there are two."""
    resource = replicas(count, *"abcd"[:n])
    ids = [device.id for device in resource.devices]
    pool_ = pool(resource, *(one for one in ids if chance.random() < 0.4))
    usable = sorted(pool_.usable)
    must = chance.sample(usable, min(len(usable), chance.choice([0, 0, 1])))
    size = chance.randint(len(must), len(usable))
    chosen = picked(pool_, size, *must, policy=policy)
    assert len(set(chosen)) == len(chosen) == size
    assert set(must) <= set(chosen) <= pool_.usable
    names = {device.id: physical_id(device) for device in resource.devices}
    assert len({names[one] for one in chosen}) == min(size, len({names[one] for one in usable}))
