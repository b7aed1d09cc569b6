"""Tests of `plugin.machine.partition_topology`."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from plugin.machine.partition_topology import Unit, topology_of
from tests.machines import NVLINK, machine
from tests.strategies import node_topologies
from tests.unit.plugin.machine_values import mig_device
from topology.model import (
    NO_LINK,
    Gpu,
    P2pAccess,
    PcieLevel,
    SwitchFabric,
    decode_topology,
    encode_topology,
)
from topology.model.node_topology import MeasuredPair, MeasuredSet, Measurement
from topology.recordings import load_recording

RECORDED = load_recording("dgx-a100")
A100 = replace(
    RECORDED, gpus=tuple(replace(gpu, uuid=f"GPU-{i}") for i, gpu in enumerate(RECORDED.gpus))
)
SLICE = mig_device("MIG-0", "1g.5gb", 0, 7, 0, 4864)
OTHER = mig_device("MIG-1", "1g.5gb", 1, 8, 0)
FAR = mig_device("MIG-2", "1g.5gb", 0, 7, 0)


def whole(*places):
    """Whole GPUs."""
    return [Unit(place) for place in places]


def test_all_gpus_are_the_machine_itself():
    """The usual case costs nothing and loses nothing, whatever the model will hold one day."""
    assert topology_of(A100, whole(*range(8))) is A100


def test_some_gpus_keep_what_is_between_them():
    """Links, levels, NICs, fabric ports and measurements follow their GPUs to new numbers."""
    measured = Measurement(
        pairs=(MeasuredPair(0, 1, 10.0), MeasuredPair(1, 3, 20.0)),
        sets=(MeasuredSet((0, 1, 3), 5.0), MeasuredSet((1, 2, 3), 6.0)),
        nccl_version="2.20",
    )
    topology = machine(
        [Gpu(uuid=f"G{i}", numa_node=i // 2) for i in range(4)],
        links={(0, 1): NVLINK(1)},
        levels={(2, 3): PcieLevel.PXB, "else": PcieLevel.SYS},
        fabrics=[SwitchFabric(((1, 4), (2, 6), (3, 8)))],
        p2p=P2pAccess.YES,
        measurement=measured,
    )
    some = topology_of(topology, whole(1, 2, 3))
    assert [gpu.uuid for gpu in some.gpus] == ["G1", "G2", "G3"]
    assert some.fabrics == (SwitchFabric(((0, 4), (1, 6), (2, 8))),)
    assert some.links[1][2] == NVLINK(6)
    assert [row[2] for row in some.pcie] == [PcieLevel.SYS, PcieLevel.PXB, PcieLevel.SELF]
    assert some.p2p is P2pAccess.YES
    assert some.measurement == Measurement(
        pairs=(MeasuredPair(0, 2, 20.0),), sets=(MeasuredSet((0, 1, 2), 6.0),), nccl_version="2.20"
    )
    assert topology_of(topology, whole(2)).measurement is None
    assert topology_of(topology, whole(0)).fabrics == ()
    moved = topology_of(topology, whole(3, 1, 2)).measurement
    assert moved is not None
    assert moved.sets == (MeasuredSet((0, 1, 2), 6.0),)
    turned = topology_of(topology, whole(3, 1)).measurement
    assert turned == Measurement(pairs=(MeasuredPair(0, 1, 20.0),), nccl_version="2.20")


def test_nics_keep_their_levels_to_the_gpus_that_are_left():
    """A NIC stays, though its own GPU may be gone."""
    some = topology_of(A100, whole(5, 6))
    assert [nic.name for nic in some.nics] == [nic.name for nic in A100.nics]
    assert all(
        nic.levels == (was.levels[5], was.levels[6])
        for nic, was in zip(some.nics, A100.nics, strict=True)
    )


def test_instances_have_no_link_and_the_level_of_their_gpus():
    """MIG has no P2P at all; two instances of one GPU have no bridge between them."""
    some = topology_of(A100, [Unit(0, SLICE), Unit(0, OTHER), Unit(4, FAR)])
    assert {link for row in some.links for link in row} == {NO_LINK}
    assert some.pcie[0][1] is PcieLevel.PIX
    assert some.pcie[0][2] is A100.pcie[0][4]
    assert (some.fabrics, some.p2p, some.measurement) == ((), P2pAccess.NO, None)
    first = some.gpus[0]
    assert (first.uuid, first.parent, first.memory_mib) == ("MIG-0", "GPU-0", 4864)
    assert first.model == f"{A100.gpus[0].model} MIG 1g.5gb"
    assert (first.pci_bus_id, first.numa_node) == (A100.gpus[0].pci_bus_id, A100.gpus[0].numa_node)
    unnamed = topology_of(machine([Gpu(uuid="G", link_generation=4)]), [Unit(0, SLICE)])
    assert (unnamed.gpus[0].model, unnamed.gpus[0].link_generation) == (None, None)


@given(topology=node_topologies(max_gpus=8), chance=st.randoms(use_true_random=False))
def test_any_parts_of_any_machine_make_a_topology_that_can_be_published(topology, chance):
    """The model checks itself, and the text that others read gives the same value."""
    places = chance.sample(range(topology.n_gpus), chance.randint(1, topology.n_gpus))
    parts = [
        Unit(place, instance)
        for place in places
        for instance in chance.choice(
            [
                (None,),
                (
                    mig_device(f"a{place}", "1g.5gb", 0, 0, 0),
                    mig_device(f"b{place}", "1g.5gb", 1, 1, 0),
                ),
            ]
        )
    ]
    some = topology_of(topology, parts)
    assert some.n_gpus == len(parts)
    assert decode_topology(encode_topology(some)) == some
