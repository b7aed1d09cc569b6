"""Links that are down, and the machine with all of them up.

What it answers: which GPUs have fewer links up than they should, and what the machine may be with
these links. A topology counts links that are up and has no list of those that are not, so what
should be there comes from the equals of a GPU on its node:

- a switch fabric: fewer links than the member with the most; all members of a fabric that is down;
- direct links: fewer in sum than the product has (`topology.model.gpu_models`), while some GPU of
  that model on the node has all. A machine that is wired with fewer links than its GPUs have is
  therefore not taken for degraded, nor is a GPU without any direct link, since bridges may be there
  for some pairs alone, unless the others lack together what the product gives it.

A link whose count is unknown makes its GPU unknown. Which GPUs a direct link joined follows from
the counts where one GPU lacks as many as the others together; else there are several ways, of which
one is right. A way joins all that lack links, if any does, and gives no pair more links than some
pair of the machine has.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import combinations, islice
from typing import TYPE_CHECKING

from topology.model.gpu_models import find_gpu_model
from topology.model.gpu_sets import MAX_TABLE_GPUS
from topology.model.node_topology import AcceleratorLink, LinkKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from topology.model.node_topology import NodeTopology

__all__ = ["LinkShortage", "links_down", "with_links_up"]

MAX_WAYS, _FEW_GPUS = 16, 8
"""Each way is a table of values: some 10 ms for 8 GPUs. Of larger machines one way is tried, and
above `MAX_TABLE_GPUS` direct links are not put back: there may be thousands."""


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


def with_links_up(topology: NodeTopology) -> tuple[NodeTopology, ...]:
    """What the machine may be with all links up; empty where none is known to be down.

    One for each way to put direct links back, of which `MAX_WAYS` at most are tried.

    >>> from topology.recordings import load_recording
    >>> (whole,) = with_links_up(load_recording("dgx-1-v100-dead-link"))
    >>> whole.links == load_recording("dgx-1-v100").links
    True
    """
    shortages = links_down(topology)
    if not shortages:
        return ()
    links = [list(row) for row in topology.links]
    fabrics = list(topology.fabrics)
    for index, fabric in enumerate(fabrics):
        most = max(n_links for _, n_links in fabric.ports)
        ports = tuple((gpu, most) for gpu, _ in fabric.ports)
        fabrics[index] = replace(fabric, ports=ports, is_up=True)
        for (i, j), link in fabrics[index].pair_links():
            links[i][j] = links[j][i] = link
    direct = tuple(_of_direct_links(topology)) if topology.n_gpus <= MAX_TABLE_GPUS else ()
    lacking = {one.gpu: one.n_expected - one.n_links for one in direct}
    kinds = {one.gpu: one.kind for one in direct}
    n_ways = MAX_WAYS if topology.n_gpus <= _FEW_GPUS else 1
    usual = max((link.n_links or 0 for row in topology.links for link in row), default=0)
    room = {
        (i, j): max(0, usual - (topology.links[i][j].n_links or 0))
        for i, j in combinations(sorted(lacking), 2)
    }
    machines: list[NodeTopology] = []
    for way in islice(_ways(lacking, room), n_ways):
        whole = [list(row) for row in links]
        for (i, j), n_back in way.items():
            n_links = (whole[i][j].n_links or 0) + n_back
            whole[i][j] = whole[j][i] = AcceleratorLink(kinds[i], n_links)
        machines.append(replace(topology, links=tuple(map(tuple, whole)), fabrics=tuple(fabrics)))
    return tuple(machines)


def _ways(
    lacking: Mapping[int, int], most: Mapping[tuple[int, int], int]
) -> Iterator[Counter[tuple[int, int]]]:
    """The ways to join GPUs that lack links: how many links each pair gets back.

    `most` is how many a pair may get. All that is lacking comes back, unless no way does that.
    """
    found = _joined(lacking, Counter(), most, (-1, -1))
    first = next(found, None)
    if first is None:
        yield Counter()
        return
    yield first
    yield from found


def _joined(
    lacking: Mapping[int, int],
    back: Counter[tuple[int, int]],
    most: Mapping[tuple[int, int], int],
    last: tuple[int, int],
) -> Iterator[Counter[tuple[int, int]]]:
    """The ways that leave nothing, each once; `last` is the pair that got a link last."""
    first = next((gpu for gpu, n in lacking.items() if n), None)
    if first is None:
        yield back
        return
    for other, n in lacking.items():
        pair = first, other
        if not n or other == first or (first == last[0] and other < last[1]):
            continue
        if back[pair] < most[pair]:
            rest = {gpu: n - (gpu in pair) for gpu, n in lacking.items()}
            yield from _joined(rest, back + Counter({pair: 1}), most, pair)


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
        if max(counts.values()) < expected:
            continue
        n_lacking = sum(max(0, expected - n) for n in counts.values() if n)
        is_cut_off = list(counts.values()).count(0) == 1 and n_lacking == expected
        for i, n_links in counts.items():
            if n_links < expected and (n_links or is_cut_off):
                yield LinkShortage(i, model.link_kind, n_links, expected)


def _n_links(topology: NodeTopology, gpu: int) -> int | None:
    """Links of a GPU that are up; None where some are not known."""
    total = 0
    for other, link in enumerate(topology.links[gpu]):
        if other != gpu and (not link.is_known or link.n_links is None):
            return None
        total += link.n_links or 0
    return total
