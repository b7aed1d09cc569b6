"""Hypothesis strategies for the model: any valid `NodeTopology`, up to a number of GPUs.

Shapes come from all corners of the model (unknown links, switch fabrics up and down, NICs without
ids, measured pairs), since recorded machines only show the usual ones.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, TypeVar

from hypothesis import strategies as st

from topology.model import (
    NO_LINK,
    UNKNOWN_LINK,
    AcceleratorLink,
    CpuPlatform,
    Gpu,
    LinkKind,
    Nic,
    NodeTopology,
    P2pAccess,
    PcieLevel,
    SwitchFabric,
)
from topology.model.node_topology import (
    MAX_MEASURED,
    MIN_MEASURED,
    MeasuredPair,
    MeasuredSet,
    Measurement,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["link_counts", "node_topologies"]

T = TypeVar("T")

INT64_MAX = 2**63 - 1
REAL_KINDS = [LinkKind.NVLINK, LinkKind.XGMI, LinkKind.C2C, LinkKind.METAXLINK]
REAL_LEVELS = [level for level in PcieLevel if level is not PcieLevel.SELF]

accelerator_links = st.one_of(
    st.just(NO_LINK),
    st.just(UNKNOWN_LINK),
    st.builds(
        AcceleratorLink, st.sampled_from(REAL_KINDS), st.one_of(st.none(), st.integers(1, 36))
    ),
)
pcie_levels = st.sampled_from(REAL_LEVELS)
pci_bus_ids = st.builds(
    "{:04x}:{:02x}:{:02x}.{:x}".format,
    st.integers(0, 0xFFFFFFFF),
    st.integers(0, 0xFF),
    st.integers(0, 0xFF),
    st.integers(0, 15),
)
visible_names = st.text(min_size=1, max_size=20).filter(lambda name: bool(name.strip()))
bandwidths = st.floats(min_value=MIN_MEASURED, max_value=MAX_MEASURED)


@st.composite
def _gpus(draw: st.DrawFn, n: int) -> tuple[Gpu, ...]:
    uuids = draw(st.lists(st.text(min_size=1, max_size=63), min_size=n, max_size=n, unique=True))
    models = draw(st.lists(visible_names, min_size=1, max_size=3))
    maybe_numa = st.one_of(st.none(), st.integers(0, 8), st.just(INT64_MAX))
    return tuple(
        draw(
            st.builds(
                Gpu,
                uuid=st.sampled_from([None, uuid]),
                pci_bus_id=st.one_of(st.none(), pci_bus_ids),
                model=st.sampled_from([None, *models]),
                memory_mib=st.one_of(st.none(), st.integers(1, INT64_MAX)),
                numa_node=maybe_numa,
                link_generation=st.one_of(st.none(), st.integers(1, 6)),
                parent=st.one_of(st.none(), st.sampled_from(uuids)),
            )
        )
        for uuid in uuids
    )


@st.composite
def _fabrics(draw: st.DrawFn, n: int) -> tuple[SwitchFabric, ...]:
    """Give each GPU to fabric 0, fabric 1 or to none."""
    owners = draw(st.lists(st.sampled_from([None, None, 0, 1]), min_size=n, max_size=n))
    fabrics: list[SwitchFabric] = []
    for index in (0, 1):
        members = [gpu for gpu, owner in enumerate(owners) if owner == index]
        if members:
            fabrics.append(
                draw(
                    st.builds(
                        SwitchFabric,
                        ports=st.tuples(
                            *[st.tuples(st.just(g), st.integers(0, 36)) for g in members]
                        ),
                        kind=st.sampled_from(REAL_KINDS),
                        is_up=st.booleans(),
                        clique=st.one_of(st.none(), st.text(max_size=40)),
                    )
                )
            )
    return tuple(fabrics)


def _fabric_pairs(fabrics: tuple[SwitchFabric, ...]) -> dict[tuple[int, int], AcceleratorLink]:
    pairs: dict[tuple[int, int], AcceleratorLink] = {}
    for fabric in fabrics:
        for (i, n_i), (j, n_j) in combinations(fabric.ports, 2):
            lesser = min(n_i, n_j) if fabric.is_up else 0
            pairs[i, j] = AcceleratorLink(fabric.kind, lesser) if lesser else NO_LINK
    return pairs


@st.composite
def _nics(draw: st.DrawFn, n: int) -> tuple[Nic, ...]:
    names = draw(st.lists(visible_names, max_size=4, unique=True))
    return tuple(
        draw(
            st.builds(
                Nic,
                name=st.just(name),
                levels=st.tuples(*[pcie_levels] * n),
                pci_bus_id=st.one_of(st.none(), pci_bus_ids),
                numa_node=st.one_of(st.none(), st.integers(0, 8)),
                is_rdma=st.sampled_from([None, True, False]),
                gbit_per_s=st.sampled_from([None, 2.5, 100.0, 400.0]),
            )
        )
        for name in names
    )


@st.composite
def _measurements(draw: st.DrawFn, n: int) -> Measurement:
    texts = st.one_of(st.none(), st.text(max_size=12))
    pairs = list(combinations(range(n), 2))
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=6)) if pairs else []
    sets = (
        draw(st.lists(st.sets(st.integers(0, n - 1), min_size=2), max_size=3, unique_by=frozenset))
        if n > 1
        else []
    )
    return Measurement(
        pairs=tuple(MeasuredPair(i, j, draw(bandwidths)) for i, j in chosen),
        sets=tuple(MeasuredSet(tuple(sorted(gpus)), draw(bandwidths)) for gpus in sets),
        message_bytes=draw(st.one_of(st.none(), st.integers(1, INT64_MAX))),
        nccl_version=draw(texts),
        date=draw(texts),
        source=draw(texts),
    )


def _mirror(n: int, diagonal: T, cell: Callable[[int, int], T]) -> tuple[tuple[T, ...], ...]:
    half = {(i, j): cell(i, j) for i in range(n) for j in range(i + 1, n)}
    return tuple(
        tuple(diagonal if i == j else half[min(i, j), max(i, j)] for j in range(n))
        for i in range(n)
    )


@st.composite
def node_topologies(draw: st.DrawFn, *, min_gpus: int = 1, max_gpus: int = 8) -> NodeTopology:
    """Draw any valid topology of `min_gpus`..`max_gpus` GPUs."""
    n = draw(st.integers(min_gpus, max_gpus))
    fabrics = draw(_fabrics(n))
    switched = _fabric_pairs(fabrics)
    texts = st.one_of(st.none(), st.text(max_size=20))
    return NodeTopology(
        gpus=draw(_gpus(n)),
        links=_mirror(n, NO_LINK, lambda i, j: switched.get((i, j)) or draw(accelerator_links)),
        pcie=_mirror(n, PcieLevel.SELF, lambda _i, _j: draw(pcie_levels)),
        nics=draw(_nics(n)),
        fabrics=fabrics,
        p2p=draw(st.sampled_from(P2pAccess)),
        cpu=draw(st.sampled_from(CpuPlatform)),
        measurement=draw(st.one_of(st.none(), _measurements(n))),
        name=draw(texts),
        source=draw(texts),
    )


@st.composite
def link_counts(
    draw: st.DrawFn, *, min_gpus: int, max_gpus: int, counts: Sequence[int]
) -> tuple[tuple[int, ...], ...]:
    """Draw a symmetric matrix of link counts; a count named twice comes twice as often."""
    n = draw(st.integers(min_gpus, max_gpus))
    return _mirror(n, 0, lambda _i, _j: draw(st.sampled_from(counts)))
