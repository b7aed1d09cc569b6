"""The topology of a machine some of whose links are down (`plugin.simulated.fault_file`).

A pair that is joined directly loses links of its own; behind switches a GPU loses ports, and each
pair then has the lesser of its two counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

from topology.errors import ImportFormatError
from topology.model import NO_LINK, AcceleratorLink

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from topology.model import LinkKind, NodeTopology, SwitchFabric

__all__ = ["LinksDown", "without_links"]

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class LinksDown:
    """Links that are down: of a pair of GPUs (ascending), or of one GPU to its switches.

    `n` is None where all of them are.
    """

    gpus: tuple[int, ...]
    n: int | None = None


def without_links(topology: NodeTopology, down: Iterable[LinksDown]) -> NodeTopology:
    """The topology that is left when these links are down.

    Raises `ImportFormatError` where it has not so many.

    >>> from topology.recordings import load_recording
    >>> dgx = without_links(load_recording("dgx-1-v100"), [LinksDown((0, 3), 1)])
    >>> dgx.links[0][3].n_links, dgx.links[3][0].n_links
    (1, 1)
    """
    for one in down:
        is_port = len(one.gpus) == 1
        topology = _without_ports(topology, one) if is_port else _without_pair(topology, one)
    return topology


def _without_pair(topology: NodeTopology, one: LinksDown) -> NodeTopology:
    a, b = one.gpus
    where = f"GPUs {a} and {b}"
    if any({a, b} <= {gpu for gpu, _ in fabric.ports} for fabric in topology.fabrics):
        msg = f"links_down: {where} meet at a switch, expected gpu: {a} or gpu: {b} for its ports"
        raise ImportFormatError(msg)
    link = topology.links[a][b]
    if not link.is_up:
        msg = f"links_down: {where} have no links that are up, expected some"
        raise ImportFormatError(msg)
    left = _link(link.kind, _left(link.n_links, one, where))
    return _with_links(topology, {(a, b): left})


def _without_ports(topology: NodeTopology, one: LinksDown) -> NodeTopology:
    (gpu,) = one.gpus
    for place, fabric in enumerate(topology.fabrics):
        ports = dict(fabric.ports)
        if gpu not in ports:
            continue
        ports[gpu] = _left(ports[gpu], one, f"the switches of GPU {gpu}")
        worse = replace(fabric, ports=tuple(ports.items()))
        fabrics = (*topology.fabrics[:place], worse, *topology.fabrics[place + 1 :])
        return _with_links(topology, _pairs(worse), fabrics)
    msg = f"links_down: GPU {gpu} has no switch ports, expected gpus: [{gpu}, PEER]"
    raise ImportFormatError(msg)


def _left(there: int | None, one: LinksDown, where: str) -> int:
    """How many links are left of those that are there."""
    if one.n is None:
        return 0
    if there is None or one.n > there:
        has = "has no known count" if there is None else f"has {there}"
        msg = f"links_down: {one.n} links of {where}, which {has}; expected at most those"
        raise ImportFormatError(msg)
    return there - one.n


def _link(kind: LinkKind, n_links: int) -> AcceleratorLink:
    return AcceleratorLink(kind, n_links) if n_links else NO_LINK


def _pairs(fabric: SwitchFabric) -> dict[Pair, AcceleratorLink]:
    """What a fabric gives each of its pairs: the lesser count, or nothing where it is not up."""
    return {
        (i, j): _link(fabric.kind, min(n_i, n_j) if fabric.is_up else 0)
        for (i, n_i), (j, n_j) in combinations(fabric.ports, 2)
    }


def _with_links(
    topology: NodeTopology,
    links: Mapping[Pair, AcceleratorLink],
    fabrics: tuple[SwitchFabric, ...] | None = None,
) -> NodeTopology:
    both = {**links, **{(j, i): link for (i, j), link in links.items()}}
    return replace(
        topology,
        links=tuple(
            tuple(both.get((i, j), link) for j, link in enumerate(row))
            for i, row in enumerate(topology.links)
        ),
        fabrics=topology.fabrics if fabrics is None else fabrics,
    )
