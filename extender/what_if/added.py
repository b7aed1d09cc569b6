"""The nodes that a what-if adds: of a machine type of the cluster, or of a shipped recording.

A name means the machine type of the cluster where it has one, with what its nodes report (links
that are down, the Topology Manager, what a GPU is worth); of several with one name that of most
nodes. It builds no tables: those of a recording are given to it.
"""

from __future__ import annotations

from collections import Counter
from difflib import get_close_matches
from typing import TYPE_CHECKING

from extender.errors import QueryError
from extender.snapshot import NodeClass, make_view
from topology.errors import quote
from topology.model import node_worth
from topology.recordings import recording_names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from extender.rules import Rules
    from extender.snapshot import MachineType, NodeView
    from extender.state import StateMoment

__all__ = ["add_nodes", "find_kind", "kinds_by_name", "recorded_kind"]

FIRST_INDEX = 1 << 31
"""Of the kinds of recordings: above those that the cluster's own ever reach."""
ZONE = ""
"""The zone of a new node is not known; it counts as one of its own."""
MAX_NAMES = 3
"""Nearest names that an error shows."""


def kinds_by_name(moment: StateMoment) -> Mapping[str, NodeClass]:
    """The kinds of the cluster's nodes whose topology is known, by the machine type's name."""
    views = (view for snapshot in moment.snapshots.values() for view in snapshot.views)
    counts = Counter(view.node_class for view in views)
    ordered = sorted(counts.items(), key=lambda item: (item[1], -item[0].index))
    return {kind.name: kind for kind, _ in ordered if kind.machine is not None}


def find_kind(machine: str, kinds: Mapping[str, NodeClass], *, where: str) -> NodeClass | None:
    """The kind of this name; None for a recording, whose tables are to be built.

    Raises `QueryError` for a name that is neither.
    """
    if machine in kinds:
        return kinds[machine]
    if machine in recording_names():
        return None
    known = sorted({*kinds, *recording_names()})
    typed = machine.lower()
    close = get_close_matches(typed, known, n=MAX_NAMES, cutoff=0.4)
    near = [*dict.fromkeys([*(one for one in known if typed in one.lower()), *close])][:MAX_NAMES]
    hint = f"; nearest: {', '.join(near)}" if near else f": {', '.join(known)}"
    msg = (
        f"{where}.machine is {quote(machine)}, expected a machine type of the cluster or the name "
        f"of a recording{hint}"
    )
    raise QueryError(msg)


def recorded_kind(name: str, machine: MachineType, rules: Rules, number: int) -> NodeClass:
    """The kind of a recording's nodes; `number` is different for each."""
    worth = node_worth(machine.selector.topology.gpus, rules.gpu_worth).per_device
    resource = rules.resources[0]
    return NodeClass(FIRST_INDEX + number, name, resource, machine, None, worth)


def add_nodes(
    groups: Iterable[tuple[str, NodeClass, int]], names: Collection[str]
) -> Sequence[NodeView]:
    """New nodes, all GPUs free: of each group its machine's name, its kind and how many.

    They are called `added-MACHINE-0` and so on, and as none of `names`.
    """
    views: list[NodeView] = []
    taken = set(names)
    for machine, kind, count in groups:
        n_gpus = 0 if kind.machine is None else kind.machine.selector.n_gpus
        number, n_made = 0, 0
        while n_made < count:
            name = f"added-{machine}-{number}"
            number += 1
            if name in taken:
                continue
            taken.add(name)
            n_made += 1
            ids = tuple(f"{name}-gpu-{i}" for i in range(n_gpus))
            free = (1 << n_gpus) - 1
            views.append(make_view(name, zone=ZONE, node_class=kind, ids=ids, free=free))
    return views
