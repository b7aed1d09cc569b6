"""The groups as the read API shows them, each as JSON, in the order of their names.

`GroupTable.refresh` puts the members that have devices (`extender.read_api.placed_members`) beside
those that wait (`extender.groups.readings`), and makes the JSON of groups that changed. It yields
to the event loop meanwhile, and one refresh runs at a time.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from extender.groups import predict
from extender.read_api.cluster_table import Cluster
from extender.read_api.encoding import encoder
from extender.read_api.groups.bodies import GroupBody
from extender.read_api.groups.group_json import GroupFacts, WaitingMember, group_body
from extender.read_api.pacing import paced
from topology.select import pod_size

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from extender.engine import Engine
    from extender.groups import GroupStatus
    from extender.pending import WaitingPod
    from extender.read_api.pending import Pending
    from extender.read_api.placed_members import GroupKey, PlacedMember
    from extender.snapshot import MachineType
    from topology.annotations import Plan
    from topology.groups import DomainPath, GroupValue

__all__ = ["GroupTable", "GroupText", "GroupTexts"]

_encode = encoder(GroupBody)
_NO_MEMBERS: Mapping[str, PlacedMember] = {}


class GroupText(NamedTuple):
    """A group's JSON, and the state that it has there."""

    state: str
    json: bytes


@dataclass(frozen=True, slots=True)
class GroupTexts:
    """The groups of one generation. `keys` ascending, `texts` by key: `namespace/name`.

    `revision` grows with every change of a text.
    """

    cluster: Cluster = field(default_factory=Cluster)
    revision: int = 0
    keys: Sequence[str] = ()
    texts: Mapping[str, GroupText] = field(default_factory=dict[str, GroupText])
    known: Mapping[str, _Known] = field(default_factory=dict[str, "_Known"])


class _Known(NamedTuple):
    """What a text was made of. `shares` are what `value` was made of."""

    facts: GroupFacts
    shares: Sequence[tuple[Plan, MachineType | None, DomainPath]]
    value: GroupValue | None


class GroupTable:
    """The newest `GroupTexts` of an engine; `refresh_both` gives what they are made of."""

    def __init__(
        self, engine: Engine, refresh_both: Callable[[], Awaitable[tuple[Cluster, Pending]]]
    ) -> None:
        self._engine = engine
        self._refresh_both = refresh_both
        self._lock = asyncio.Lock()
        self._groups = GroupTexts()

    async def refresh(self) -> GroupTexts:
        """The groups now. O(groups) comparisons, members that wait, and the groups that changed."""
        async with self._lock:
            cluster, pending = await self._refresh_both()
            self._groups = await self._next(self._groups, cluster, pending)
            return self._groups

    async def _next(self, before: GroupTexts, cluster: Cluster, pending: Pending) -> GroupTexts:
        statuses: dict[GroupKey, GroupStatus] = {}
        async for status in paced(self._engine.groups.readings.statuses()):
            if status.members:
                statuses[status.key] = status
        waiting = await self._waiting(pending, statuses)
        known, texts = dict[str, _Known](), dict[str, GroupText]()
        async for key in paced({**cluster.members, **statuses, **waiting}):
            name = "/".join(key)
            old = before.known.get(name)
            new = self._facts(key, cluster, statuses.get(key), waiting.get(key, ()), old)
            if old is not None and new.is_same(old.facts):
                known[name], texts[name] = old, before.texts[name]
                continue
            known[name] = self._valued(new, cluster, old)
            text = _text(known[name])
            is_equal = text == before.texts.get(name)
            texts[name] = before.texts[name] if is_equal else text
        keys = before.keys
        if texts.keys() != before.texts.keys():
            keys = sorted(texts)
        is_changed = texts != before.texts
        return GroupTexts(cluster, before.revision + is_changed, keys, texts, known)

    async def _waiting(
        self, pending: Pending, statuses: Mapping[GroupKey, GroupStatus]
    ) -> Mapping[GroupKey, Sequence[WaitingMember]]:
        """The pending members of groups that no status names: they wait for no other."""
        known: set[str] = set()
        async for status in paced(statuses.values()):
            known.update(one.uid for one in status.members)
        found: dict[GroupKey, list[WaitingMember]] = {}
        async for name, counts in paced(pending.groups.items()):
            pod, _ = pending.pods[name]
            if pod.uid not in known:
                found.setdefault((pod.namespace, counts["name"]), []).append(self._member(pod))
        return found

    def _member(self, pod: WaitingPod) -> WaitingMember:
        return WaitingMember(
            uid=pod.uid,
            name=pod.name,
            rank=None if pod.request is None else pod.request.rank,
            size_gpus=None if pod.shape is None else pod_size(pod.shape.requests),
            since_s=pod.since_s,
            reason=pod.reason,
        )

    def _facts(
        self,
        key: GroupKey,
        cluster: Cluster,
        status: GroupStatus | None,
        waiting: Sequence[WaitingMember],
        old: _Known | None,
    ) -> GroupFacts:
        placed = cluster.members.get(key, _NO_MEMBERS)
        before = None if old is None else old.facts
        size = None if status is None else status.size
        if size is None and (before is None or before.placed is not placed):
            size = self._size(placed)
        if size is None and before is not None:
            size = before.size
        return GroupFacts(key, placed, status, waiting, size)

    def _size(self, placed: Mapping[str, PlacedMember]) -> int | None:
        """What a member said when filter was called for it last; None where that is not kept.

        Not a size that counts pods without GPUs too.
        """
        for uid, one in placed.items():
            request = self._engine.pending.recall(uid, f"{one.key[0]}/{one.name}")
            if request is not None and request.group is not None:
                return None if request.group.counts_all else request.group.size
        return None

    def _valued(self, facts: GroupFacts, cluster: Cluster, old: _Known | None) -> _Known:
        """With what all members with a node are worth together, by their plans.

        Some 30 us for each node, so that the value is kept while its members have the same GPUs.
        """
        placed = facts.placed.values()
        shares = [(one.plan, one.machine, one.path) for one in placed]
        if old is not None and old.shares == shares:
            return _Known(facts, shares, old.value)
        if not shares:
            return _Known(facts, shares, None)
        plans = [one.plan for one in placed]
        resource = next((one.resource for one in plans[0].containers), "")
        snapshot = cluster.moment.snapshots[cluster.moment.key(resource)]
        value = predict(plans, snapshot.nodes, self._engine.cluster.domains)
        return _Known(facts, shares, value)


def _text(known: _Known) -> GroupText:
    body = group_body(known.facts, known.value)
    return GroupText(body["state"], _encode(body))
