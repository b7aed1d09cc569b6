"""Tests of `plugin.machine.inventory`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest

from kube.errors import SettingsError
from plugin.machine import MachineReading, Partition, TimeSlicing
from plugin.machine.inventory import MAX_DEVICE_ID, Inventory, take_inventory
from plugin.machine.partition_topology import Unit, topology_of
from plugin.nvidia.mig_strategy import MigStrategy, mig_units
from tests.unit.plugin.machine_values import gpu_reading, mig_device
from topology.recordings import load_recording

if TYPE_CHECKING:
    from topology.model import NodeTopology

RECORDED = load_recording("dgx-a100")
WHOLE = replace(
    RECORDED, gpus=tuple(replace(gpu, uuid=f"GPU-{i}") for i, gpu in enumerate(RECORDED.gpus))
)
NONE, SINGLE, MIXED = MigStrategy


def slices(gpu: int, *profiles: str) -> tuple[Partition, ...]:
    """MIG instances of a GPU."""
    return tuple(
        mig_device(f"MIG-{gpu}-{i}", profile, i, i + 7, 0, parent=f"GPU-{gpu}")
        for i, profile in enumerate(profiles)
    )


def reading(*mig: tuple[str, ...] | None, faults: dict[int, str] | None = None) -> MachineReading:
    """A machine of so many GPUs; MIG is enabled where profiles are given (perhaps none)."""
    gpus = tuple(
        gpu_reading(
            i,
            f"GPU-{i}",
            numa_node=i // 4,
            partitions=None if profiles is None else slices(i, *profiles),
            fault=(faults or {}).get(i),
        )
        for i, profiles in enumerate(mig)
    )
    topology = topology_of(WHOLE, [Unit(i) for i in range(len(mig))])
    return MachineReading(gpus, topology)


def under(strategy: MigStrategy):
    """The units of NVIDIA GPUs under a strategy."""
    return partial(mig_units, strategy=strategy)


def offered(inventory: Inventory) -> dict[str, list[str]]:
    """Device ids by resource."""
    return {one.name: [device.id for device in one.devices] for one in inventory.resources}


def uuids(topology: NodeTopology | None) -> list[str | None]:
    """The devices of a topology."""
    return [] if topology is None else [gpu.uuid for gpu in topology.gpus]


def test_gpus_are_one_resource_with_the_machine_s_own_topology():
    """The usual machine: nothing is lost or renamed on the way."""
    read = reading(None, None, None)
    inventory = take_inventory(read)
    assert offered(inventory) == {"nvidia.com/gpu": ["GPU-0", "GPU-1", "GPU-2"]}
    assert inventory.topology is read.topology
    assert inventory.notes == ()
    device = inventory.resources[0].devices[1]
    assert (device.place, device.gpu.uuid, device.numa_node, device.replica) == (
        1,
        "GPU-1",
        0,
        None,
    )


@pytest.mark.parametrize(
    ("strategy", "mig", "expected"),
    [
        pytest.param(
            NONE, (("1g.5gb",), None), {"nvidia.com/gpu": ["GPU-0", "GPU-1"]}, id="none: MIG or not"
        ),
        pytest.param(
            NONE, ((), None), {"nvidia.com/gpu": ["GPU-0", "GPU-1"]}, id="none: no instance"
        ),
        pytest.param(
            SINGLE, (None, None), {"nvidia.com/gpu": ["GPU-0", "GPU-1"]}, id="single: no MIG"
        ),
        pytest.param(
            SINGLE,
            (("1g.5gb", "1g.5gb"), ("1g.5gb",)),
            {"nvidia.com/gpu": ["MIG-0-0", "MIG-0-1", "MIG-1-0"]},
            id="single: all alike",
        ),
        pytest.param(
            SINGLE, (("1c.2g.10gb",),), {"nvidia.com/gpu": ["MIG-0-0"]}, id="single: any profile"
        ),
        pytest.param(
            MIXED, (None, None), {"nvidia.com/gpu": ["GPU-0", "GPU-1"]}, id="mixed: no MIG"
        ),
        pytest.param(
            MIXED,
            (("1g.5gb", "3g.20gb"), None, ("1g.5gb+me", "1g.5gb")),
            {
                "nvidia.com/gpu": ["GPU-1"],
                "nvidia.com/mig-1g.5gb": ["MIG-0-0", "MIG-2-1"],
                "nvidia.com/mig-3g.20gb": ["MIG-0-1"],
                "nvidia.com/mig-1g.5gb.me": ["MIG-2-0"],
            },
            id="mixed: each profile",
        ),
        pytest.param(
            MIXED, (("7g.40gb",),), {"nvidia.com/mig-7g.40gb": ["MIG-0-0"]}, id="mixed: all MIG"
        ),
    ],
)
def test_strategies(strategy, mig, expected):
    """What NVIDIA's plugin would offer on the same machine."""
    assert offered(take_inventory(reading(*mig), units_of=under(strategy))) == expected


@pytest.mark.parametrize(
    ("strategy", "mig", "expected", "message"),
    [
        pytest.param(
            SINGLE,
            (("1g.5gb",), None, ("1g.5gb",)),
            ["MIG-0-0", "MIG-2-0"],
            "GPU 'GPU-1': it is without MIG, and most GPUs are 1g.5gb",
            id="single: one without MIG",
        ),
        pytest.param(
            SINGLE,
            (("1g.5gb",), None, None),
            ["GPU-1", "GPU-2"],
            "GPU 'GPU-0': it is 1g.5gb (None MiB), and most GPUs are without MIG",
            id="single: one with MIG",
        ),
        pytest.param(
            SINGLE, (("1g.5gb",), None), ["MIG-0-0"], "it is without MIG", id="single: the first"
        ),
        pytest.param(
            SINGLE,
            (("1g.5gb", "2g.10gb"), ("2g.10gb",)),
            ["MIG-1-0"],
            "GPU 'GPU-0': its instances are 1g.5gb (None MiB), 2g.10gb (None MiB), expected all",
            id="single: two kinds on one GPU",
        ),
        pytest.param(
            SINGLE,
            ((), ("1g.5gb",)),
            ["MIG-1-0"],
            "GPU 'GPU-0': MIG is enabled and there is no instance; it is left out",
            id="single: no instance",
        ),
        pytest.param(
            MIXED,
            (None, (), ("1g.5gb",)),
            ["GPU-0", "MIG-2-0"],
            "GPU 'GPU-1': MIG is enabled and there is no instance; it is left out",
            id="mixed: no instance",
        ),
        pytest.param(
            MIXED,
            (("1c.2g.10gb", "1g.5gb"),),
            ["MIG-0-1"],
            "'1c.2g.10gb' has no resource under MIG strategy mixed; 'MIG-0-0' is left out",
            id="mixed: smaller compute instance",
        ),
    ],
)
def test_a_gpu_that_does_not_suit_the_strategy_is_left_out_alone(strategy, mig, expected, message):
    """NVIDIA's plugin ends, and the good GPUs of the node go with the bad one."""
    inventory = take_inventory(reading(*mig), units_of=under(strategy))
    assert [one for ids in offered(inventory).values() for one in ids] == expected
    note = inventory.notes[0]
    assert len(inventory.notes) == 1
    assert message in note


@pytest.mark.parametrize(
    ("strategy", "mig", "message"),
    [
        pytest.param(SINGLE, (("1g.5gb", "2g.10gb"),), "expected all of one kind", id="two kinds"),
        pytest.param(SINGLE, ((),), "GPU 'GPU-0': MIG is enabled and there is no", id="none"),
        pytest.param(MIXED, ((),), "GPU 'GPU-0': MIG is enabled and there is no", id="mixed: none"),
        pytest.param(
            MIXED, (("1c.2g.10gb",),), "'1c.2g.10gb' has no resource", id="smaller compute"
        ),
        pytest.param(MIXED, (("1g.5gb+me,x",),), "resource name is", id="no resource name"),
    ],
)
def test_machines_that_a_strategy_does_not_suit(strategy, mig, message):
    """An error, as in NVIDIA's plugin: the machine has nothing of what was configured."""
    with pytest.raises(SettingsError) as caught:
        take_inventory(reading(*mig), units_of=under(strategy))
    assert message in str(caught.value)


def test_instances_stand_in_the_order_of_their_indices():
    """However the reader came by them."""
    read = reading(("1g.5gb", "1g.5gb"))
    turned = replace(read.gpus[0], partitions=read.gpus[0].partitions[::-1])
    inventory = take_inventory(replace(read, gpus=(turned,)), units_of=under(SINGLE))
    assert offered(inventory) == {"nvidia.com/gpu": ["MIG-0-0", "MIG-0-1"]}


def test_one_kind_means_the_memory_too():
    """NVIDIA compares all attributes of the instances, and the profile's name rounds."""
    one, other = slices(0, "1g.5gb", "1g.5gb")
    read = reading(("1g.5gb", "1g.5gb"))
    gpu = replace(read.gpus[0], partitions=(replace(one, memory_mib=4864), other))
    with pytest.raises(SettingsError):
        take_inventory(replace(read, gpus=(gpu,)), units_of=under(SINGLE))


@pytest.mark.parametrize(
    ("strategy", "mig", "expected"),
    [
        pytest.param(SINGLE, (("1g.5gb",), None), ["MIG-0-0"], id="single: its MIG is unknown"),
        pytest.param(SINGLE, (("1g.5gb",), ()), ["MIG-0-0"], id="single: its instances are gone"),
        pytest.param(MIXED, (None, ()), ["GPU-0"], id="mixed: its instances are gone"),
    ],
)
def test_a_lost_gpu_never_blocks_the_others(strategy, mig, expected):
    """It is left out with a note where its instances are unknown; else the node would be lost."""
    inventory = take_inventory(
        reading(*mig, faults={1: "fell off the bus"}), units_of=under(strategy)
    )
    assert offered(inventory) == {"nvidia.com/gpu": expected}
    assert uuids(inventory.topology) == expected
    (note,) = inventory.notes
    assert "'GPU-1'" in note
    assert "fell off the bus" in note


def test_a_lost_gpu_stays_listed_where_it_is_known():
    """The kubelet takes a device that is missing for healthy."""
    inventory = take_inventory(reading(None, None, faults={0: "lost"}), units_of=under(SINGLE))
    assert offered(inventory) == {"nvidia.com/gpu": ["GPU-0", "GPU-1"]}
    assert uuids(inventory.topology) == ["GPU-0", "GPU-1"]


def test_replicas_are_counted_for_each_device():
    """Ids as NVIDIA's, renamed as configured, and no topology: such pods are placed by count."""
    sharing = TimeSlicing({"nvidia.com/gpu": 2}, suffix=".shared")
    inventory = take_inventory(reading(None, None), sharing=sharing)
    assert offered(inventory) == {
        "nvidia.com/gpu.shared": ["GPU-0::0", "GPU-0::1", "GPU-1::0", "GPU-1::1"]
    }
    assert [(one.place, one.replica) for one in inventory.resources[0].devices] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]
    assert inventory.topology is None
    assert "placed by count" in inventory.notes[0]


def test_a_shared_mig_resource_leaves_the_gpus_as_they_are():
    """Only what is shared cannot be planned by name."""
    sharing = TimeSlicing({"nvidia.com/mig-1g.5gb": 2, "nvidia.com/mig-7g.40gb": 2})
    inventory = take_inventory(reading(("1g.5gb",), None), units_of=under(MIXED), sharing=sharing)
    assert offered(inventory) == {
        "nvidia.com/gpu": ["GPU-1"],
        "nvidia.com/mig-1g.5gb": ["MIG-0-0::0", "MIG-0-0::1"],
    }
    assert uuids(inventory.topology) == ["GPU-1"]
    assert inventory.warnings == (
        "nvidia.com/mig-7g.40gb is to be shared, but this machine has no such devices",
    )


def test_no_topology_without_whole_gpus():
    """Instances of several profiles are placed by count; there is nothing else here."""
    inventory = take_inventory(reading(("1g.5gb", "2g.10gb")), units_of=under(MIXED))
    assert inventory.topology is None


def test_the_base_resource_can_be_called_otherwise():
    """The extender's resource is configurable; MIG resources share its domain."""
    inventory = take_inventory(
        reading(("1g.5gb",), None), units_of=under(MIXED), base="example.com/accel"
    )
    assert offered(inventory) == {
        "example.com/accel": ["GPU-1"],
        "example.com/mig-1g.5gb": ["MIG-0-0"],
    }
    with pytest.raises(SettingsError):
        take_inventory(reading(None), base="accel")


def test_an_id_that_the_kubelet_would_refuse_is_reported():
    """63 characters at most, replica number included."""
    long = "G" * (MAX_DEVICE_ID - 3)
    gpus = (gpu_reading(0, long),)
    topology = replace(topology_of(WHOLE, [Unit(0)]), gpus=(replace(WHOLE.gpus[0], uuid=long),))
    read = MachineReading(gpus, topology)
    assert take_inventory(read, sharing=TimeSlicing({"nvidia.com/gpu": 10})).resources
    with pytest.raises(SettingsError) as caught:
        take_inventory(read, sharing=TimeSlicing({"nvidia.com/gpu": 11}))
    assert "expected at most 63 characters" in str(caught.value)
