"""The model's values check themselves: each contradiction is refused by name."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given

from tests.strategies import node_topologies, pci_bus_ids
from topology import errors
from topology.errors import InvalidTopology, TopologyError, quote
from topology.model import (
    NO_LINK,
    UNKNOWN_LINK,
    AcceleratorLink,
    Gpu,
    LinkKind,
    Nic,
    NodeTopology,
    PcieLevel,
    SwitchFabric,
    normalise_pci_bus_id,
)
from topology.model.node_topology import MeasuredPair, MeasuredSet, Measurement

if TYPE_CHECKING:
    from collections.abc import Callable

X, PIX, SYS = PcieLevel.SELF, PcieLevel.PIX, PcieLevel.SYS
NV2 = AcceleratorLink(LinkKind.NVLINK, 2)


def pair(**changes: object) -> NodeTopology:
    """Build two GPUs joined by two NVLinks; keyword arguments replace fields."""
    fields: dict[str, object] = {
        "gpus": (Gpu(), Gpu()),
        "links": ((NO_LINK, NV2), (NV2, NO_LINK)),
        "pcie": ((X, SYS), (SYS, X)),
    }
    return NodeTopology(**(fields | changes))  # type: ignore[arg-type] # the fields are the test


def test_the_smallest_node_has_one_gpu() -> None:
    """Nothing needs to be known for a GPU to exist."""
    node = NodeTopology(gpus=(Gpu(),), links=((NO_LINK,),), pcie=((X,),))
    assert node.n_gpus == 1


def test_values_are_frozen() -> None:
    """Topologies are shared between threads and used as cache keys."""
    with pytest.raises(FrozenInstanceError):
        pair().name = "other"  # type: ignore[misc] # that it fails is the test
    assert hash(pair()) == hash(pair())


def test_levels_rank_from_near_to_far_and_unknown_last() -> None:
    """Unknown must never win a comparison."""
    assert [level.value for level in sorted(PcieLevel, key=lambda level: level.rank)] == [
        *("X", "PIX", "PXB", "PHB", "NODE", "SYS", "?")
    ]


@pytest.mark.parametrize(
    ("link", "is_known", "is_up"),
    [
        pytest.param(NV2, True, True, id="counted links"),
        pytest.param(AcceleratorLink(LinkKind.XGMI, None), True, True, id="the count is unknown"),
        pytest.param(NO_LINK, True, False, id="no link is a fact"),
        pytest.param(UNKNOWN_LINK, False, False, id="unknown is none"),
    ],
)
def test_unknown_is_not_none(link: AcceleratorLink, is_known: bool, is_up: bool) -> None:
    """The two differ wherever a policy requires something."""
    assert (link.is_known, link.is_up) == (is_known, is_up)


def test_a_fabric_that_is_down_has_pairs_without_links() -> None:
    """Links that end at a switch which does not route are of no use."""
    links = ((NO_LINK, NO_LINK), (NO_LINK, NO_LINK))
    down = SwitchFabric(ports=((0, 18), (1, 18)), is_up=False)
    assert pair(links=links, fabrics=(down,)).fabrics == (down,)
    assert pair(links=links, fabrics=(SwitchFabric(ports=((0, 18), (1, 0))),)).n_gpus == 2


UP = SwitchFabric(ports=((0, 2), (1, 3)))
MEASURED = Measurement(pairs=(MeasuredPair(0, 1, 42.0),), sets=(MeasuredSet((0, 1), 42.0),))


def test_a_full_node_is_accepted() -> None:
    """All parts at once: the refusals below change one thing each."""
    nic = Nic("mlx5_0", (PIX, SYS), "0000:18:00.0", 0, is_rdma=True, gbit_per_s=400)
    gpus = (Gpu("GPU-a", "0000:3b:00.0", "A40", 46068, 0, 3), Gpu("GPU-b", parent="GPU-p"))
    assert pair(gpus=gpus, nics=(nic,), fabrics=(UP,), measurement=MEASURED).n_gpus == 2


@pytest.mark.parametrize(
    ("build", "message"),
    [
        pytest.param(
            lambda: AcceleratorLink(LinkKind.NONE, 1), "n_links is 1, expected 0", id="none with 1"
        ),
        pytest.param(
            lambda: AcceleratorLink(LinkKind.UNKNOWN, None),
            "n_links is None, expected 0",
            id="unknown with None",
        ),
        pytest.param(
            lambda: AcceleratorLink(LinkKind.NVLINK, 0), "n_links is 0, expected 1..36", id="NV0"
        ),
        pytest.param(
            lambda: AcceleratorLink(LinkKind.NVLINK, 37), "is 37, expected 1..36", id="NV37"
        ),
        pytest.param(lambda: Gpu(uuid=""), "uuid '': expected 1..63", id="empty uuid"),
        pytest.param(lambda: Gpu(uuid="x" * 64), "expected 1..63 characters", id="long uuid"),
        pytest.param(
            lambda: Gpu(pci_bus_id="0000:3B:00.0"), "expected lower-case", id="upper-case bus id"
        ),
        pytest.param(lambda: Gpu(model=" "), "model ' ': expected a name", id="blank model"),
        pytest.param(lambda: Gpu(memory_mib=0), "memory_mib is 0, expected at least 1", id="0 MiB"),
        pytest.param(lambda: Gpu(numa_node=-1), "numa_node is -1, expected at least 0", id="numa"),
        pytest.param(lambda: Gpu(link_generation=0), "link_generation is 0", id="generation 0"),
        pytest.param(lambda: Nic(" ", (PIX,)), "NIC name ' '", id="blank NIC"),
        pytest.param(lambda: Nic("a", (PIX, X)), "level X to GPU 1", id="NIC is a GPU"),
        pytest.param(lambda: Nic("a", (PIX,), "3b"), "pci_bus_id '3b'", id="NIC bus id"),
        pytest.param(lambda: Nic("a", (PIX,), None, -1), "numa_node is -1", id="NIC numa"),
        pytest.param(
            lambda: Nic("a", (PIX,), gbit_per_s=0), "gbit_per_s is 0, expected above 0", id="NIC 0"
        ),
        pytest.param(
            lambda: Nic("a", (PIX,), gbit_per_s=200_000),
            "gbit_per_s is 200000, expected above 0 and at most 10000",
            id="NIC too fast",
        ),
        pytest.param(lambda: SwitchFabric(ports=()), "members are []", id="fabric without members"),
        pytest.param(lambda: SwitchFabric(ports=((1, 1), (0, 1))), "ascending", id="order"),
        pytest.param(lambda: SwitchFabric(ports=((0, 1), (0, 1))), "different GPU", id="twice"),
        pytest.param(lambda: SwitchFabric(ports=((0, 37),)), "37 links, expected 0..36", id="37"),
        pytest.param(
            lambda: SwitchFabric(ports=((0, 1),), kind=LinkKind.NONE),
            "fabric kind is none",
            id="fabric of no kind",
        ),
        pytest.param(
            lambda: Measurement(pairs=(MeasuredPair(1, 0, 1.0),)), "ascending", id="pair order"
        ),
        pytest.param(
            lambda: Measurement(sets=(MeasuredSet((0,), 1.0),)), "at least 2", id="set of one"
        ),
        pytest.param(
            lambda: Measurement(sets=(MeasuredSet((-1, 0), 1.0),)), "at least 2", id="GPU -1"
        ),
        pytest.param(
            lambda: Measurement(pairs=(MeasuredPair(0, 1, 0.0),)), "a positive number", id="0 GB/s"
        ),
        pytest.param(
            lambda: Measurement(pairs=(MeasuredPair(0, 1, float("nan")),)),
            "a positive number",
            id="nan GB/s",
        ),
        pytest.param(
            lambda: Measurement(pairs=(MeasuredPair(0, 1, 1.0),) * 2),
            "pair (0, 1) is given twice",
            id="pair twice",
        ),
        pytest.param(
            lambda: Measurement(sets=(MeasuredSet((0, 1), 1.0),) * 2),
            "set (0, 1) is given twice",
            id="set twice",
        ),
        pytest.param(lambda: Measurement(message_bytes=0), "message_bytes is 0", id="0 bytes"),
        pytest.param(lambda: pair(gpus=()), "topology has 0 GPUs, expected 1..512", id="no GPU"),
        pytest.param(lambda: pair(gpus=(Gpu(),) * 513), "has 513 GPUs", id="513 GPUs"),
        pytest.param(
            lambda: pair(gpus=(Gpu("a"), Gpu("a"))), "uuid 'a' is given twice", id="uuid twice"
        ),
        pytest.param(
            lambda: pair(links=((NO_LINK, NV2),)), "links matrix is 1 x [2]", id="row missing"
        ),
        pytest.param(
            lambda: pair(pcie=((X,), (SYS, X))), "pcie matrix is 2 x [1, 2]", id="cell missing"
        ),
        pytest.param(
            lambda: pair(links=((NV2, NV2), (NV2, NO_LINK))), "links[0][0] is", id="self link"
        ),
        pytest.param(
            lambda: pair(pcie=((X, SYS), (SYS, PIX))), "pcie[1][1] is", id="not on the diagonal"
        ),
        pytest.param(
            lambda: pair(links=((NO_LINK, NV2), (NO_LINK, NO_LINK))),
            "expected equal",
            id="asymmetric links",
        ),
        pytest.param(
            lambda: pair(pcie=((X, PIX), (SYS, X))), "expected equal", id="asymmetric levels"
        ),
        pytest.param(
            lambda: pair(pcie=((X, X), (X, X))), "row 0 holds X off the diagonal", id="X twice"
        ),
        pytest.param(
            lambda: pair(nics=(Nic("a", (PIX,)),)), "1 levels, expected one for each", id="NIC row"
        ),
        pytest.param(
            lambda: pair(nics=(Nic("a", (PIX, SYS)),) * 2), "NIC 'a' is given twice", id="NIC twice"
        ),
        pytest.param(
            lambda: pair(fabrics=(SwitchFabric(ports=((2, 1),)),)),
            "GPU 2: expected 0..1",
            id="fabric beyond the node",
        ),
        pytest.param(
            lambda: pair(fabrics=(SwitchFabric(ports=((-1, 1),)),)),
            "GPU -1: expected 0..1",
            id="negative fabric member",
        ),
        pytest.param(
            lambda: pair(fabrics=(SwitchFabric(ports=((0, 1),)), SwitchFabric(ports=((0, 1),)))),
            "in one fabric only",
            id="GPU in two fabrics",
        ),
        pytest.param(
            lambda: pair(fabrics=(SwitchFabric(ports=((0, 3), (1, 3))),)),
            "the lesser of the two port counts",
            id="pair beside its ports",
        ),
        pytest.param(
            lambda: pair(fabrics=(replace(UP, is_up=False),)),
            "the lesser of the two port counts",
            id="links through a fabric that is down",
        ),
        pytest.param(
            lambda: pair(measurement=Measurement(sets=(MeasuredSet((0, 2), 1.0),))),
            "GPU 2 is not there, expected 0..1",
            id="measured GPU",
        ),
    ],
)
def test_a_contradiction_is_refused(build: Callable[[], object], message: str) -> None:
    """A wrong fact caught here names its place; caught later it is a wrong placement."""
    with pytest.raises(InvalidTopology) as caught:
        build()
    assert message in str(caught.value)


@given(topology=node_topologies(max_gpus=6))
def test_matrices_are_symmetric(topology: NodeTopology) -> None:
    """Readers look at one half only."""
    assert tuple(zip(*topology.links, strict=True)) == topology.links
    assert tuple(zip(*topology.pcie, strict=True)) == topology.pcie


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("00000000:3B:00.0", "0000:3b:00.0", id="NVML"),
        pytest.param("0000:3b:00.0", "0000:3b:00.0", id="sysfs"),
        pytest.param(" 3b:00.0\n", "0000:3b:00.0", id="lspci"),
        pytest.param("00010000:3b:00.0", "00010000:3b:00.0", id="a domain beyond 16 bits"),
    ],
)
def test_bus_ids_are_brought_to_one_form(text: str, expected: str) -> None:
    """Devices of NVML and sysfs are matched by this string."""
    assert normalise_pci_bus_id(text) == expected


@pytest.mark.parametrize("text", ["", "3b:00", "zz:00.0", "0000:3b:00.0 x", "GPU-1"])
def test_other_bus_ids_are_refused(text: str) -> None:
    """A bus id that matches nothing would silently lose a device."""
    with pytest.raises(InvalidTopology, match="expected"):
        normalise_pci_bus_id(text)


@given(bus_id=pci_bus_ids)
def test_normalising_twice_changes_nothing(bus_id: str) -> None:
    """The form is a normal form."""
    once = normalise_pci_bus_id(bus_id)
    assert normalise_pci_bus_id(once) == once
    assert Gpu(pci_bus_id=once).pci_bus_id == once


def test_every_error_of_the_core_is_a_topology_error() -> None:
    """Callers catch one class at the door."""
    names = set(errors.__all__) - {"MAX_QUOTED", "file_fault", "quote"}
    classes = [getattr(errors, name) for name in sorted(names)]
    assert len(classes) == 7
    assert all(issubclass(c, TopologyError) for c in classes)


def test_foreign_text_is_cut() -> None:
    """One megabyte of garbage must not end in a log line."""
    assert quote("a" * 80) == repr("a" * 80)[:79] + "…"
    assert quote("short") == "'short'"
