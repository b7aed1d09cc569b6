"""Machines as they could be built: one link kind, a PCIe tree, sockets, NICs below switches.

What `tests.strategies` draws is any value the model allows; most of its matrices could be no
machine, so few sets in them share anything. These have switches, bridges, dead and unknown links,
two GPU models at times, and are cheap to draw at 16 GPUs. `relabelled` renumbers one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from hypothesis import strategies as st

from topology.annotations import Affinity, NicRule, PlacementPolicy, Strength
from topology.model import (
    NO_LINK,
    UNKNOWN_LINK,
    AcceleratorLink,
    Gpu,
    LinkKind,
    Nic,
    NodeTopology,
    P2pAccess,
    PcieLevel,
    SwitchFabric,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["build_machine_by_hand", "built_machines", "policies", "relabelled"]

T = TypeVar("T")


_LINKS = [NO_LINK, NO_LINK, UNKNOWN_LINK, *(AcceleratorLink(LinkKind.NVLINK, n) for n in (1, 1, 2))]
_MODELS = ["Tesla V100-SXM2-32GB", "NVIDIA A100-SXM4-40GB", "NVIDIA RTX A6000"]


def _level(one: tuple[int, ...], other: tuple[int, ...]) -> PcieLevel:
    """How far two places of a PCIe tree are apart: (socket, bridge, tree, switch) of each."""
    levels = (PcieLevel.SYS, PcieLevel.NODE, PcieLevel.PHB, PcieLevel.PXB)
    return next(
        (level for level, a, b in zip(levels, one, other, strict=True) if a != b), PcieLevel.PIX
    )


def _matrix(n: int, diagonal: T, cell: Callable[[int, int], T]) -> tuple[tuple[T, ...], ...]:
    return tuple(
        tuple(diagonal if i == j else cell(min(i, j), max(i, j)) for j in range(n))
        for i in range(n)
    )


@st.composite
def built_machines(
    draw: st.DrawFn, *, min_gpus: int = 2, max_gpus: int = 8, all_known: bool = False
) -> NodeTopology:
    """Draw a machine; `all_known`: nothing about its links and levels is unknown."""
    n = draw(st.integers(min_gpus, max_gpus))
    bits = st.integers(0, 1)
    places = draw(st.lists(st.tuples(bits, bits, bits, bits), min_size=n, max_size=n))
    links = draw(
        st.lists(
            st.sampled_from([link for link in _LINKS if link.is_known or not all_known]),
            min_size=n * n,
            max_size=n * n,
        )
    )
    dark = 0 if all_known else draw(st.sampled_from([0, 0, 5]))
    hidden = draw(st.lists(st.integers(0, 9), min_size=n * n, max_size=n * n))
    ports = draw(st.lists(st.sampled_from([0, 0, 12, 6]), min_size=n, max_size=n))
    is_switched = draw(st.booleans())
    members = tuple((i, port) for i, port in enumerate(ports) if port and is_switched)
    fabric = SwitchFabric(ports=members, is_up=draw(st.booleans())) if members else None
    inside = dict(members)

    def link(i: int, j: int) -> AcceleratorLink:
        if fabric is not None and i in inside and j in inside:
            lesser = min(inside[i], inside[j])
            return AcceleratorLink(LinkKind.NVLINK, lesser) if fabric.is_up else NO_LINK
        return links[i * n + j]

    def level(i: int, j: int) -> PcieLevel:
        return PcieLevel.UNKNOWN if hidden[i * n + j] < dark else _level(places[i], places[j])

    models = draw(st.sampled_from([_MODELS[:1], _MODELS[1:2], _MODELS[2:], _MODELS[:2]]))
    owners = draw(st.lists(st.sampled_from(models), min_size=n, max_size=n))
    has_numa = draw(st.booleans())
    nics = draw(st.lists(st.tuples(bits, bits, bits, bits), max_size=2))
    return NodeTopology(
        gpus=tuple(
            Gpu(model=owner, numa_node=place[0] if has_numa else None)
            for owner, place in zip(owners, places, strict=True)
        ),
        links=_matrix(n, NO_LINK, link),
        pcie=_matrix(n, PcieLevel.SELF, level),
        nics=tuple(
            Nic(
                name=f"mlx5_{k}",
                levels=tuple(_level(nic, place) for place in places),
                is_rdma=draw(st.sampled_from([True, True, False, None])),
            )
            for k, nic in enumerate(nics)
        ),
        fabrics=(fabric,) if fabric is not None else (),
        p2p=draw(st.sampled_from(P2pAccess)),
    )


def build_machine_by_hand(
    n: int,
    *,
    links: Mapping[tuple[int, int], int] | None = None,
    rest: AcceleratorLink = NO_LINK,
    levels: Mapping[PcieLevel, Sequence[Sequence[int]]] | None = None,
    far: PcieLevel = PcieLevel.SYS,
    numa: Sequence[int | None] | None = None,
    models: Sequence[str | None] | None = None,
    parents: Sequence[str] | None = None,
    near_nic: Sequence[int] = (),
    fabrics: tuple[SwitchFabric, ...] = (),
) -> NodeTopology:
    """A machine for a table test: NVLink counts by pair, PCIe groups by level, one RDMA NIC."""
    counts = links or {}
    ports = [dict(fabric.ports) for fabric in fabrics if fabric.is_up]

    def link(i: int, j: int) -> AcceleratorLink:
        for port in ports:
            if i in port and j in port:
                return AcceleratorLink(LinkKind.NVLINK, min(port[i], port[j]))
        return AcceleratorLink(LinkKind.NVLINK, counts[i, j]) if (i, j) in counts else rest

    def level(i: int, j: int) -> PcieLevel:
        return next(
            (at for at, groups in (levels or {}).items() for g in groups if i in g and j in g), far
        )

    numa_of = numa or [None] * n
    model_of = models or ["Tesla V100-SXM2-32GB"] * n
    nic = tuple(PcieLevel.PIX if i in near_nic else PcieLevel.SYS for i in range(n))
    return NodeTopology(
        gpus=tuple(
            Gpu(model=model_of[i], numa_node=numa_of[i], parent=parents[i] if parents else None)
            for i in range(n)
        ),
        links=_matrix(n, NO_LINK, link),
        pcie=_matrix(n, PcieLevel.SELF, level),
        nics=(Nic(name="mlx5_0", levels=nic, is_rdma=True),) if near_nic else (),
        fabrics=fabrics,
        p2p=P2pAccess.YES,
    )


def policies(*, affinities: Sequence[Affinity] = tuple(Affinity)) -> st.SearchStrategy:
    """Every policy that a selection can distinguish."""
    return st.builds(
        PlacementPolicy,
        affinity=st.sampled_from(affinities),
        strength=st.sampled_from(Strength),
        min_bandwidth_gbytes_per_s=st.sampled_from([None, None, 5.0, 15.0, 30.0]),
        nic=st.sampled_from(NicRule),
    )


def relabelled(topology: NodeTopology, old_of: Sequence[int]) -> NodeTopology:
    """The same machine with GPU `old_of[i]` as number i; without measurements."""
    new_of = {old: new for new, old in enumerate(old_of)}
    return replace(
        topology,
        gpus=tuple(topology.gpus[old] for old in old_of),
        links=tuple(tuple(topology.links[a][b] for b in old_of) for a in old_of),
        pcie=tuple(tuple(topology.pcie[a][b] for b in old_of) for a in old_of),
        nics=tuple(
            replace(nic, levels=tuple(nic.levels[old] for old in old_of)) for nic in topology.nics
        ),
        fabrics=tuple(
            replace(fabric, ports=tuple(sorted((new_of[gpu], n) for gpu, n in fabric.ports)))
            for fabric in topology.fabrics
        ),
        measurement=None,
    )
