"""The cluster as the read API shows it: an entry for each node, and sums by machine type.

`ClusterTable.refresh` looks which nodes changed since the last time, makes their entries and
corrects the sums; it yields to the event loop meanwhile. What it leaves is a `Cluster` of one
generation, which never changes. One refresh runs at a time: others wait for it and look again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from itertools import compress
from operator import is_not
from typing import TYPE_CHECKING

from extender.read_api.figures import SetFigures
from extender.read_api.node_entry import NodeEntry
from extender.read_api.pacing import batches, paced, pause
from extender.read_api.placed_members import members_after
from extender.read_api.sums import Sums
from extender.state import StateMoment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from extender.read_api.placed_members import GroupKey, MembersByGroup, PlacedMember
    from extender.read_api.sums import TallyKey
    from extender.snapshot import MachineType
    from extender.state import Account, LiveCluster, NodeRecord

__all__ = ["AT_ONCE", "Cluster", "ClusterTable"]

AT_ONCE = 1024
"""Names that are compared between two looks at the time: some 0.1 ms."""


_NO_STATE = StateMoment({}, {}, {}, ())


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster at one generation.

    `names` are those of the nodes that lists show, ascending; `entries` has every node. `sums` are
    by machine type, in order. `stranded_since_s` is since when, in Unix seconds, a machine type has
    had stranded GPUs each time it was looked at. `machines` are by digest. `revision` grows with
    every change of an answer. `moment` is the state that it was made from.
    """

    generation: int = -1
    moment: StateMoment = _NO_STATE
    revision: int = 0
    names: Sequence[str] = ()
    entries: Mapping[str, NodeEntry] = field(default_factory=dict[str, NodeEntry])
    sums: Mapping[TallyKey, Sums] = field(default_factory=dict["TallyKey", Sums])
    stranded_since_s: Mapping[TallyKey, float] = field(default_factory=dict["TallyKey", float])
    machines: Mapping[str, MachineType] = field(default_factory=dict[str, "MachineType"])
    n_pods: int = 0
    members: MembersByGroup = field(default_factory=dict["GroupKey", "Mapping[str, PlacedMember]"])


class ClusterTable:
    """The newest `Cluster`; `clock` gives Unix seconds."""

    def __init__(self, state: LiveCluster, clock: Callable[[], float]) -> None:
        self._state = state
        self._clock = clock
        self.figures = SetFigures()
        self._lock = asyncio.Lock()
        self._cluster = Cluster()
        # As they were at the last refresh.
        self._nodes: Mapping[str, NodeRecord] = {}
        self._accounts: Mapping[str, Sequence[Account]] = {}

    @property
    def latest(self) -> Cluster:
        """The cluster as it was when last looked at."""
        return self._cluster

    async def refresh(self) -> Cluster:
        """The cluster as it is now. O(nodes) comparisons, and the nodes that changed."""
        async with self._lock:
            self._cluster = await self._next(self._cluster)
            return self._cluster

    async def _next(self, before: Cluster) -> Cluster:
        state = self._state
        moment = state.moment()
        nodes, accounts, generation = moment.nodes, moment.accounts, moment.generation
        await pause()
        others = await _changed(nodes, self._nodes) | await _changed(accounts, self._accounts)
        await pause()
        entries, changed = dict(before.entries), list[tuple[NodeEntry | None, NodeEntry | None]]()
        async for name in paced(others):
            old, new = entries.pop(name, None), None
            if name in nodes:
                pods = tuple(state.pods.on_node(name))
                new = NodeEntry(nodes[name], accounts[name], pods, self.figures)
                entries[name] = new
            changed.append((old, new))
        if not changed:
            self._nodes, self._accounts = nodes, accounts
            return replace(before, generation=generation, moment=moment)
        sums, machines, n_pods = dict(before.sums), dict(before.machines), before.n_pods
        async for old, new in paced(changed):
            for entry, sign in ((old, -1), (new, 1)):
                if entry is not None:
                    n_pods += sign * entry.n_pods
                    for tally in entry.tallies:
                        if tally.machine is not None:
                            machines[tally.machine.digest] = tally.machine
                        sums[tally.key] = sums.get(tally.key, Sums()).changed(tally.sums, sign)
        now_s = self._clock() if before.revision else None
        members = await members_after(before.members, map(_members, changed), now_s)
        sums = {key: one for key, one in sorted(sums.items(), key=_order) if one.n_nodes}
        digests = {key.topology for key in sums}
        # Not before: a walk that was cancelled has to be made again.
        self._nodes, self._accounts = nodes, accounts
        return Cluster(
            generation=generation,
            moment=moment,
            revision=before.revision + 1,
            names=_names(before, entries, changed),
            entries=entries,
            sums=sums,
            stranded_since_s=self._stranded_since(before, sums),
            machines={key: one for key, one in machines.items() if key in digests},
            n_pods=n_pods,
            members=members,
        )

    def _stranded_since(
        self, before: Cluster, sums: Mapping[TallyKey, Sums]
    ) -> Mapping[TallyKey, float]:
        now_s = self._clock()
        return {
            key: before.stranded_since_s.get(key, now_s)
            for key, one in sums.items()
            if one.n_stranded
        }


def _members(
    change: tuple[NodeEntry | None, NodeEntry | None],
) -> tuple[Sequence[PlacedMember], Sequence[PlacedMember]]:
    """The members of groups that a node had, and those that it has."""
    old, new = change
    return () if old is None else old.members, () if new is None else new.members


async def _changed(now: Mapping[str, object], before: Mapping[str, object]) -> set[str]:
    """The names with another object than before, or none. O(n), in parts of `AT_ONCE` names."""
    found: set[str] = set()
    async for names in paced(batches(now, AT_ONCE)):
        olds, news = map(before.get, names), map(now.__getitem__, names)
        found.update(compress(names, map(is_not, news, olds)))
    n_added = sum(name not in before for name in found)
    if len(now) - n_added < len(before):
        found |= before.keys() - now.keys()
    return found


def _order(item: tuple[TallyKey, Sums]) -> tuple[str, str, str]:
    key = item[0]
    return key.machine, key.resource, key.topology or ""


def _names(
    before: Cluster,
    entries: Mapping[str, NodeEntry],
    changed: Sequence[tuple[NodeEntry | None, NodeEntry | None]],
) -> Sequence[str]:
    """The names that lists show; sorted again only where others are to be shown than before."""
    if all(
        (old is not None and old.is_listed) == (new is not None and new.is_listed)
        for old, new in changed
    ):
        return before.names
    return tuple(sorted(name for name, entry in entries.items() if entry.is_listed))
