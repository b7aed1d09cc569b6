"""GPUs with links that are down, by their node's topology.

What it answers: which GPUs have fewer links up than they should. A topology counts links that are
up and has no list of those that are not, so what should be there comes from the equals of a GPU on
its node:

- a switch fabric: fewer links than the member with the most; all members of a fabric that is down;
- direct links: fewer in sum than the product has (`topology.model.gpu_models`), while more than
  half of the node's GPUs of that model have all. A machine that is wired with fewer links than its
  GPUs have is therefore not taken for degraded.

It guesses nothing: a link whose count is unknown makes its GPU unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topology.audit.values import DegradedGpu
from topology.model import LinkKind, find_gpu_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topology.model import NodeTopology

__all__ = ["find_degraded"]


def find_degraded(node: str, topology: NodeTopology) -> tuple[DegradedGpu, ...]:
    """List the GPUs of a node with links that are down, by index.

    >>> from topology.recordings import load_recording
    >>> found = find_degraded("n1", load_recording("dgx-1-v100-dead-link"))
    >>> [(one.gpu, one.n_links, one.n_expected) for one in found]
    [(2, 5, 6), (6, 5, 6)]
    """
    found = (*_of_fabrics(node, topology), *_of_direct_links(node, topology))
    return tuple(sorted(found, key=lambda one: (one.gpu, one.kind)))


def _of_fabrics(node: str, topology: NodeTopology) -> Iterator[DegradedGpu]:
    for fabric in topology.fabrics:
        most = max(n_links for _, n_links in fabric.ports)
        for gpu, n_links in fabric.ports:
            up = n_links if fabric.is_up else 0
            if up < most or not fabric.is_up:
                uuid = topology.gpus[gpu].uuid
                yield DegradedGpu(node, gpu, uuid, fabric.kind.value, up, most)


def _of_direct_links(node: str, topology: NodeTopology) -> Iterator[DegradedGpu]:
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
                kind = model.link_kind.value
                yield DegradedGpu(node, i, topology.gpus[i].uuid, kind, n_links, expected)


def _n_links(topology: NodeTopology, gpu: int) -> int | None:
    """Links of a GPU that are up; None where some are not known."""
    total = 0
    for other, link in enumerate(topology.links[gpu]):
        if other != gpu and (not link.is_known or link.n_links is None):
            return None
        total += link.n_links or 0
    return total
