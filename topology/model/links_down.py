"""Links that are down, and the machine with all of them up.

What it answers: which GPUs have fewer links up than they should, and what the machine would be with
these links. A topology counts links that are up and has no list of those that are not, so what
should be there comes from the equals of a GPU on its node:

- a switch fabric: fewer links than the member with the most; all members of a fabric that is down;
- direct links: fewer in sum than the product has (`topology.model.gpu_models`), while more than
  half of the node's GPUs of that model have all. A machine that is wired with fewer links than its
  GPUs have is therefore not taken for degraded.

It guesses nothing: a link whose count is unknown makes its GPU unknown, and direct links are put
back only where the counts leave one way to do it: one GPU lacks as many as all others together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from topology.model.gpu_models import find_gpu_model
from topology.model.node_topology import AcceleratorLink, LinkKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topology.model.node_topology import NodeTopology

__all__ = ["LinkShortage", "links_down", "with_links_up"]


@dataclass(frozen=True, slots=True)
class LinkShortage:
    """A GPU with fewer links up than it should have; `n_links` of `n_expected`."""

    gpu: int
    kind: LinkKind
    n_links: int
    n_expected: int


def links_down(topology: NodeTopology) -> tuple[LinkShortage, ...]:
    """List the GPUs with links that are down, by index.

    >>> from topology.recordings import load_recording
    >>> found = links_down(load_recording("dgx-1-v100-dead-link"))
    >>> [(one.gpu, one.n_links, one.n_expected) for one in found]
    [(2, 5, 6), (6, 5, 6)]
    """
    found = (*_of_fabrics(topology), *_of_direct_links(topology))
    return tuple(sorted(found, key=lambda one: (one.gpu, one.kind.value)))


def with_links_up(topology: NodeTopology) -> NodeTopology | None:
    """The machine with all links up; None where none is down or where they led is not known.

    >>> from topology.recordings import load_recording
    >>> whole = with_links_up(load_recording("dgx-1-v100-dead-link"))
    >>> whole.links == load_recording("dgx-1-v100").links
    True
    """
    links = [list(row) for row in topology.links]
    fabrics = list(topology.fabrics)
    for index, fabric in enumerate(fabrics):
        most = max(n_links for _, n_links in fabric.ports)
        ports = tuple((gpu, most) for gpu, _ in fabric.ports)
        fabrics[index] = replace(fabric, ports=ports, is_up=True)
        for (i, j), link in fabrics[index].pair_links():
            links[i][j] = links[j][i] = link
    lacking = {one.gpu: one for one in _of_direct_links(topology)}
    if lacking:
        first = max(lacking, key=lambda gpu: _n_down(lacking[gpu]))
        others = [gpu for gpu in lacking if gpu != first]
        if _n_down(lacking[first]) != sum(_n_down(lacking[gpu]) for gpu in others):
            return None
        for gpu in others:
            n_links = (links[first][gpu].n_links or 0) + _n_down(lacking[gpu])
            link = AcceleratorLink(lacking[gpu].kind, n_links)
            links[first][gpu] = links[gpu][first] = link
    whole = replace(topology, links=tuple(map(tuple, links)), fabrics=tuple(fabrics))
    return None if whole == topology else whole


def _n_down(one: LinkShortage) -> int:
    return one.n_expected - one.n_links


def _of_fabrics(topology: NodeTopology) -> Iterator[LinkShortage]:
    for fabric in topology.fabrics:
        most = max(n_links for _, n_links in fabric.ports)
        for gpu, n_links in fabric.ports:
            up = n_links if fabric.is_up else 0
            if up < most or not fabric.is_up:
                yield LinkShortage(gpu, fabric.kind, up, most)


def _of_direct_links(topology: NodeTopology) -> Iterator[LinkShortage]:
    switched = {gpu for fabric in topology.fabrics for gpu, _ in fabric.ports}
    by_model: dict[str, dict[int, int]] = {}
    for i, gpu in enumerate(topology.gpus):
        n_links = _n_links(topology, i)
        if gpu.model is not None and n_links is not None and i not in switched:
            by_model.setdefault(gpu.model, {})[i] = n_links
    for name, counts in by_model.items():
        model = find_gpu_model(name)
        if model is None or model.link_kind is LinkKind.NONE:
            continue
        expected = model.links_per_gpu
        if 2 * sum(n >= expected for n in counts.values()) <= len(counts):
            continue
        for i, n_links in counts.items():
            if n_links < expected:
                yield LinkShortage(i, model.link_kind, n_links, expected)


def _n_links(topology: NodeTopology, gpu: int) -> int | None:
    """Links of a GPU that are up; None where some are not known."""
    total = 0
    for other, link in enumerate(topology.links[gpu]):
        if other != gpu and (not link.is_known or link.n_links is None):
            return None
        total += link.n_links or 0
    return total
