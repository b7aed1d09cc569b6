"""Which pods would have to end for a pod to fit on a node that is too full now.

Tries the pods on each node by one, then by two, then by three, and takes the first that makes room:
of equally many pods those with fewer GPUs, then the node that comes first by name. So it is the
smallest such set of pods within a bounded number of tries; with none left it is unknown, never
guessed. It ends nothing, and says nothing of priorities: preempt decides by its own rules.

The search is in turns (`blocking_turns`), so that a caller on the event loop can pause between
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import merge
from itertools import combinations, islice
from operator import attrgetter
from typing import TYPE_CHECKING

from extender.placement import Refusal
from extender.snapshot import with_free

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from extender.placement import Rater
    from extender.protocol import PodRequest
    from extender.snapshot import NodeView, Overlay
    from topology.select import PodFit

__all__ = ["BlockingPods", "blocking_turns", "find_blocking_pods"]

MAX_PODS = 3
"""Most pods that are to end; more of them are no help that somebody waits for."""
MAX_NODES = 32
"""Nodes looked at, each with other GPUs free or other pods."""
MAX_ENDS = 1024
"""Combinations of so many pods of one node; 16 pods have 560 of three."""
MAX_TRIES = 192
"""Selections for one answer: one takes some 0.1 ms (`benchmarks speed`)."""


@dataclass(frozen=True, slots=True)
class BlockingPods:
    """The node, the pods (`namespace/name`) with the GPUs that they have, and the sets then.

    `n_gpus` are all that those pods free there; `fit` is None where devices go by count.
    """

    view: NodeView
    pods: tuple[str, ...]
    n_gpus: int
    fit: PodFit | None


def find_blocking_pods(
    request: PodRequest,
    views: Iterable[NodeView],
    overlay: Callable[[NodeView], Overlay],
    rater: Rater,
) -> BlockingPods | None:
    """The fewest pods, then the fewest GPUs, whose end makes room on one of the nodes.

    `overlay` gives a view's node, its pods by name. None where no `MAX_PODS` pods of a node
    suffice, or none was found within the bound. Machine types that are rated slowly are passed
    over: there are many tries.
    """
    turns = blocking_turns(request, views, overlay, rater)
    while True:
        try:
            next(turns)
        except StopIteration as end:
            found: BlockingPods | None = end.value
            return found


def blocking_turns(
    request: PodRequest,
    views: Iterable[NodeView],
    overlay: Callable[[NodeView], Overlay],
    rater: Rater,
) -> Generator[None, None, BlockingPods | None]:
    """The same, in turns of one node's pods or one selection each."""
    nodes: dict[tuple[int, tuple[int, ...]], Overlay] = {}
    for view in sorted(views, key=attrgetter("name")):
        if view.node_class.machine is not None and view.node_class.machine.is_rated_slowly:
            continue
        node = overlay(view)
        if node.held:
            nodes.setdefault((view.state, tuple(sorted(node.held.values()))), node)
        if len(nodes) >= MAX_NODES:
            break
        yield
    n_tried = 0
    for n_pods in range(1, MAX_PODS + 1):
        by_node: list[list[_End]] = []
        for node in nodes.values():
            ends = _ends(node, n_pods)
            enough = [end for end in ends if end.free.bit_count() >= request.size_gpus]
            by_node.append(sorted(enough, key=_order))
            yield
        for end in merge(*by_node, key=_order):
            if n_tried >= MAX_TRIES:
                return None
            n_tried += 1
            fit = rater.choose(request, with_free(end.view, end.free))
            if not isinstance(fit, Refusal):
                return BlockingPods(end.view, end.pods, end.n_gpus, fit)
            yield
    return None


@dataclass(frozen=True, slots=True)
class _End:
    """What is free on a node once some of its pods have ended."""

    view: NodeView
    pods: tuple[str, ...]
    n_gpus: int
    free: int


def _order(end: _End) -> tuple[int, str, tuple[str, ...]]:
    return end.n_gpus, end.view.name, end.pods


def _ends(node: Overlay, n_pods: int) -> Iterator[_End]:
    """So many pods at a time, as far as they are tried; those with fewer GPUs first."""
    names = sorted(node.held, key=lambda name: (node.held[name].bit_count(), name))
    for pods in islice(combinations(names, n_pods), MAX_ENDS):
        freed = node.freed(pods)
        yield _End(node.view, tuple(sorted(pods)), freed.bit_count(), node.view.free | freed)
