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

    from tests.messages import CheckMessage

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
    "build",
    [
        pytest.param(lambda: AcceleratorLink(LinkKind.NONE, 1), id="none with 1"),
        pytest.param(lambda: AcceleratorLink(LinkKind.UNKNOWN, None), id="unknown with None"),
        pytest.param(lambda: AcceleratorLink(LinkKind.NVLINK, 0), id="NV0"),
        pytest.param(lambda: AcceleratorLink(LinkKind.NVLINK, 37), id="NV37"),
        pytest.param(lambda: Gpu(uuid=""), id="empty uuid"),
        pytest.param(lambda: Gpu(uuid="x" * 64), id="long uuid"),
        pytest.param(lambda: Gpu(pci_bus_id="0000:3B:00.0"), id="upper-case bus id"),
        pytest.param(lambda: Gpu(model=" "), id="blank model"),
        pytest.param(lambda: Gpu(memory_mib=0), id="0 MiB"),
        pytest.param(lambda: Gpu(numa_node=-1), id="numa"),
        pytest.param(lambda: Gpu(link_generation=0), id="generation 0"),
        pytest.param(lambda: Nic(" ", (PIX,)), id="blank NIC"),
        pytest.param(lambda: Nic("a", (PIX, X)), id="NIC is a GPU"),
        pytest.param(lambda: Nic("a", (PIX,), "3b"), id="NIC bus id"),
        pytest.param(lambda: Nic("a", (PIX,), None, -1), id="NIC numa"),
        pytest.param(lambda: Nic("a", (PIX,), gbit_per_s=0), id="NIC 0"),
        pytest.param(lambda: Nic("a", (PIX,), gbit_per_s=200_000), id="NIC too fast"),
        pytest.param(lambda: SwitchFabric(ports=()), id="fabric without members"),
        pytest.param(lambda: SwitchFabric(ports=((1, 1), (0, 1))), id="order"),
        pytest.param(lambda: SwitchFabric(ports=((0, 1), (0, 1))), id="twice"),
        pytest.param(lambda: SwitchFabric(ports=((0, 37),)), id="37"),
        pytest.param(
            lambda: SwitchFabric(ports=((0, 1),), kind=LinkKind.NONE), id="fabric of no kind"
        ),
        pytest.param(lambda: Measurement(pairs=(MeasuredPair(1, 0, 1.0),)), id="pair order"),
        pytest.param(lambda: Measurement(sets=(MeasuredSet((0,), 1.0),)), id="set of one"),
        pytest.param(lambda: Measurement(sets=(MeasuredSet((-1, 0), 1.0),)), id="GPU -1"),
        pytest.param(lambda: Measurement(pairs=(MeasuredPair(0, 1, 0.0),)), id="0 GB/s"),
        pytest.param(lambda: Measurement(pairs=(MeasuredPair(0, 1, float("nan")),)), id="nan GB/s"),
        pytest.param(lambda: Measurement(pairs=(MeasuredPair(0, 1, 1.0),) * 2), id="pair twice"),
        pytest.param(lambda: Measurement(sets=(MeasuredSet((0, 1), 1.0),) * 2), id="set twice"),
        pytest.param(lambda: Measurement(message_bytes=0), id="0 bytes"),
        pytest.param(lambda: pair(gpus=()), id="no GPU"),
        pytest.param(lambda: pair(gpus=(Gpu(),) * 513), id="513 GPUs"),
        pytest.param(lambda: pair(gpus=(Gpu("a"), Gpu("a"))), id="uuid twice"),
        pytest.param(lambda: pair(links=((NO_LINK, NV2),)), id="row missing"),
        pytest.param(lambda: pair(pcie=((X,), (SYS, X))), id="cell missing"),
        pytest.param(lambda: pair(links=((NV2, NV2), (NV2, NO_LINK))), id="self link"),
        pytest.param(lambda: pair(pcie=((X, SYS), (SYS, PIX))), id="not on the diagonal"),
        pytest.param(
            lambda: pair(links=((NO_LINK, NV2), (NO_LINK, NO_LINK))), id="asymmetric links"
        ),
        pytest.param(lambda: pair(pcie=((X, PIX), (SYS, X))), id="asymmetric levels"),
        pytest.param(lambda: pair(pcie=((X, X), (X, X))), id="X twice"),
        pytest.param(lambda: pair(nics=(Nic("a", (PIX,)),)), id="NIC row"),
        pytest.param(lambda: pair(nics=(Nic("a", (PIX, SYS)),) * 2), id="NIC twice"),
        pytest.param(
            lambda: pair(fabrics=(SwitchFabric(ports=((2, 1),)),)), id="fabric beyond the node"
        ),
        pytest.param(
            lambda: pair(fabrics=(SwitchFabric(ports=((-1, 1),)),)), id="negative fabric member"
        ),
        pytest.param(
            lambda: pair(fabrics=(SwitchFabric(ports=((0, 1),)), SwitchFabric(ports=((0, 1),)))),
            id="GPU in two fabrics",
        ),
        pytest.param(
            lambda: pair(fabrics=(SwitchFabric(ports=((0, 3), (1, 3))),)),
            id="pair beside its ports",
        ),
        pytest.param(
            lambda: pair(fabrics=(replace(UP, is_up=False),)),
            id="links through a fabric that is down",
        ),
        pytest.param(
            lambda: pair(measurement=Measurement(sets=(MeasuredSet((0, 2), 1.0),))),
            id="measured GPU",
        ),
    ],
)
def test_a_contradiction_is_refused(
    build: Callable[[], object], check_message: CheckMessage
) -> None:
    """A wrong fact caught here names its place; caught later it is a wrong placement."""
    with pytest.raises(InvalidTopology) as caught:
        build()
    check_message(caught.value)


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
def test_other_bus_ids_are_refused(text: str, check_message: CheckMessage) -> None:
    """A bus id that matches nothing would silently lose a device."""
    with pytest.raises(InvalidTopology) as caught:
        normalise_pci_bus_id(text)
    check_message(caught.value)


@given(bus_id=pci_bus_ids)
def test_normalising_twice_changes_nothing(bus_id: str) -> None:
    """The form is a normal form."""
    once = normalise_pci_bus_id(bus_id)
    assert normalise_pci_bus_id(once) == once
    assert Gpu(pci_bus_id=once).pci_bus_id == once


def test_every_error_of_the_core_is_a_topology_error() -> None:
    """Callers catch one class at the door."""
    names = set(errors.__all__) - {"MAX_QUOTED", "file_fault", "nearest", "quote"}
    classes = [getattr(errors, name) for name in sorted(names)]
    assert len(classes) == 8
    assert all(issubclass(c, TopologyError) for c in classes)


def test_foreign_text_is_cut() -> None:
    """One megabyte of garbage must not end in a log line."""
    assert quote("a" * 80) == repr("a" * 80)[:79] + "…"
    assert quote("short") == "'short'"
