"""Who has which device: the one account of claims, plans and holds.

What it answers: for every node, which device ids are free; for every pod, which it has. It is fed
by binds and, live, by watches; it never looks at a clock (time is an argument), never talks to
anyone and never decides which device a pod should get.

`extender.state.transitions` holds the rules. An operation names a pod and device ids; it is applied
to all its ids or to none, and an illegal one is answered with `Refused`, which names the id, its
state and the event. Two pods never own one id, whatever is called in whatever order.

A pod is on one node. Its record keeps the ids it *owns now*: a hold that took an id from a plan
takes it from that plan's record too, and `Applied.displaced` names the pod that lost it.

Not thread-safe: one writer (bind, or the watch feed), on the event loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from extender.state.transitions import OWNED, TRANSITIONS, DeviceEvent, DeviceState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Applied", "Holding", "Ledger", "Refused"]

_TAKES = frozenset({DeviceEvent.CLAIM, DeviceEvent.ASSUME, DeviceEvent.HOLD})


@dataclass(frozen=True, slots=True)
class Applied:
    """The operation took place. `nodes` had a device change state; `displaced` pods lost one."""

    nodes: tuple[str, ...]
    displaced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """The operation was illegal and changed nothing.

    `subject` is a device id, a pod uid or a node name; `state` is what it is in, `event` what was
    tried, `detail` a sentence for people.
    """

    subject: str
    state: str
    event: DeviceEvent
    detail: str


@dataclass(frozen=True, slots=True)
class Holding:
    """What one pod has. `ids` in device order; `deadline_s` while it is assumed, else None."""

    uid: str
    node: str
    ids: tuple[str, ...]
    deadline_s: float | None = None


class _Node:
    """Devices of one node by position; `free` is the mask of FREE devices."""

    __slots__ = ("free", "ids", "owners", "states")

    def __init__(self, ids: tuple[str, ...]) -> None:
        self.ids = ids
        self.states = [DeviceState.FREE] * len(ids)
        self.owners: list[str | None] = [None] * len(ids)
        self.free = (1 << len(ids)) - 1


class Ledger:
    """The account. `generation` grows by one with every operation that changed a device."""

    def __init__(self) -> None:
        self.generation = 0
        self._nodes: dict[str, _Node] = {}
        self._pods: dict[str, Holding] = {}
        self._counts = dict.fromkeys(DeviceState, 0)

    # Reading.

    @property
    def counts(self) -> Mapping[DeviceState, int]:
        """Number of devices in each state."""
        return dict(self._counts)

    @property
    def n_pods(self) -> int:
        """Number of pods that have a claim, a plan or a hold."""
        return len(self._pods)

    def holding(self, uid: str) -> Holding | None:
        """What a pod has, or None."""
        return self._pods.get(uid)

    def holdings(self) -> tuple[Holding, ...]:
        """What every pod has, in the order in which they came."""
        return tuple(self._pods.values())

    def free_mask(self, node: str) -> int:
        """Bit i is set where device i of the node is free and healthy; 0 for an unknown node."""
        entry = self._nodes.get(node)
        return 0 if entry is None else entry.free

    def states(self, node: str) -> tuple[tuple[str, DeviceState, str | None], ...]:
        """(device id, state, owner) of each device of a node, in device order."""
        entry = self._nodes.get(node)
        if entry is None:
            return ()
        return tuple(zip(entry.ids, entry.states, entry.owners, strict=True))

    # Nodes.

    def add_node(self, node: str, ids: Sequence[str]) -> Applied:
        """Open the account of a node, all its devices free; the ids are different.

        Raises `ValueError` for a node that is known, or an id that is given twice.
        """
        if node in self._nodes or len(set(ids)) != len(ids):
            msg = f"node {node}: expected a new node with different device ids"
            raise ValueError(msg)
        self._nodes[node] = _Node(tuple(ids))
        self._counts[DeviceState.FREE] += len(ids)
        self.generation += 1
        return Applied((node,))

    def remove_node(self, node: str) -> Applied:
        """Close the account of a node; the pods on it lose what they had. O(devices)."""
        entry = self._nodes.pop(node, None)
        if entry is None:
            return Applied(())
        for state in entry.states:
            self._counts[state] -= 1
        gone = tuple(dict.fromkeys(uid for uid in entry.owners if uid is not None))
        for uid in gone:
            del self._pods[uid]
        self.generation += 1
        return Applied((node,), gone)

    # Pods.

    def claim(self, uid: str, node: str, ids: Sequence[str]) -> Applied | Refused:
        """A pod is nominated to the node and these ids are kept for it."""
        return self._take(uid, node, ids, DeviceEvent.CLAIM, None)

    def assume(
        self, uid: str, node: str, ids: Sequence[str], *, deadline_s: float
    ) -> Applied | Refused:
        """A bind is under way; without `confirm` the plan ends at `deadline_s`.

        The pod's own claim becomes the plan; claimed ids outside `ids` are free again.
        """
        return self._take(uid, node, ids, DeviceEvent.ASSUME, deadline_s)

    def hold(self, uid: str, node: str, ids: Sequence[str]) -> Applied | Refused:
        """The node reports that the pod really has exactly these ids, planned or not."""
        return self._take(uid, node, ids, DeviceEvent.HOLD, None)

    def confirm(self, uid: str) -> Applied | Refused:
        """The API server accepted the pod's binding."""
        return self._finish(uid, DeviceEvent.CONFIRM)

    def forget(self, uid: str) -> Applied | Refused:
        """The pod's claim or assumption came to nothing."""
        return self._finish(uid, DeviceEvent.FORGET)

    def release(self, uid: str) -> Applied | Refused:
        """The pod has ended."""
        return self._finish(uid, DeviceEvent.RELEASE)

    def expire(self, now_s: float) -> tuple[str, ...]:
        """Forget the assumptions whose deadline is not after `now_s`; returns the pods' uids."""
        late = tuple(
            one.uid
            for one in self._pods.values()
            if one.deadline_s is not None and one.deadline_s <= now_s
        )
        for uid in late:
            self._finish(uid, DeviceEvent.EXPIRE)
        return late

    # Health.

    def sicken(self, node: str, ids: Sequence[str]) -> Applied | Refused:
        """The node reports these ids as bad; claims on them are dropped, plans stay."""
        return self._health(node, ids, DeviceEvent.SICKEN)

    def recover(self, node: str, ids: Sequence[str]) -> Applied | Refused:
        """The node reports these ids as good again."""
        return self._health(node, ids, DeviceEvent.RECOVER)

    # Inside.

    def _positions(
        self, node: str, ids: Sequence[str], event: DeviceEvent
    ) -> tuple[int, ...] | Refused:
        entry = self._nodes.get(node)
        if entry is None:
            return Refused(node, "unknown", event, f"{event.value}: node {node} is not known")
        positions: list[int] = []
        for one in ids:
            if one not in entry.ids:
                detail = f"{event.value}: node {node} has no device {one}"
                return Refused(one, "unknown", event, detail)
            positions.append(entry.ids.index(one))
        if not positions or len(set(positions)) != len(positions):
            detail = f"{event.value} on node {node}: expected different device ids, at least one"
            return Refused(node, "known", event, detail)
        return tuple(sorted(positions))

    def _take(
        self,
        uid: str,
        node: str,
        ids: Sequence[str],
        event: DeviceEvent,
        deadline_s: float | None,
    ) -> Applied | Refused:
        positions = self._positions(node, ids, event)
        if isinstance(positions, Refused):
            return positions
        entry = self._nodes[node]
        for i in positions:
            state, owner = entry.states[i], entry.owners[i]
            is_foreign = owner is not None and owner != uid and event is not DeviceEvent.HOLD
            if is_foreign or (state, event) not in TRANSITIONS:
                by = f" by pod {owner}" if owner else ""
                detail = f"{event.value} for pod {uid}: device {entry.ids[i]} is {state.value}{by}"
                return Refused(entry.ids[i], state.value, event, detail)
        blocked = self._blocks(uid, event)
        if blocked is not None:
            return blocked
        touched = self._let_go(uid, node, positions)
        displaced = self._displace(uid, entry, positions)
        for i in positions:
            self._set(entry, i, TRANSITIONS[entry.states[i], event], uid)
        self._pods[uid] = Holding(uid, node, tuple([entry.ids[i] for i in positions]), deadline_s)
        self.generation += 1
        return Applied(tuple(dict.fromkeys((*touched, node))), displaced)

    def _blocks(self, uid: str, event: DeviceEvent) -> Refused | None:
        """A pod that has more than a claim gets no second claim or plan."""
        held = self._pods.get(uid)
        if held is None or event is DeviceEvent.HOLD:
            return None
        entry = self._nodes[held.node]
        state = entry.states[entry.ids.index(held.ids[0])]
        if state is DeviceState.CLAIMED and event is DeviceEvent.ASSUME:
            return None
        detail = f"{event.value} for pod {uid}: it already has devices on node {held.node}"
        return Refused(uid, state.value, event, detail)

    def _let_go(self, uid: str, node: str, keep: tuple[int, ...]) -> tuple[str, ...]:
        """Free what the pod had outside `keep`: an old claim, or a plan the kubelet changed."""
        held = self._pods.get(uid)
        if held is None:
            return ()
        entry = self._nodes[held.node]
        for one in held.ids:
            i = entry.ids.index(one)
            if held.node != node or i not in keep:
                self._set(entry, i, TRANSITIONS[entry.states[i], DeviceEvent.RELEASE], None)
        return (held.node,)

    def _displace(self, uid: str, entry: _Node, positions: tuple[int, ...]) -> tuple[str, ...]:
        """Take the positions out of other pods' records; returns who lost one."""
        losers: dict[str, None] = {}
        for i in positions:
            owner = entry.owners[i]
            if owner is not None and owner != uid:
                losers[owner] = None
        taken = [entry.ids[i] for i in positions]
        for loser in losers:
            self._keep(self._pods[loser], taken)
        return tuple(losers)

    def _keep(self, held: Holding, lost: Sequence[str]) -> None:
        """Rewrite a record without the ids that it lost; a record without ids goes."""
        left = tuple(one for one in held.ids if one not in lost)
        if left:
            self._pods[held.uid] = Holding(held.uid, held.node, left, held.deadline_s)
        else:
            del self._pods[held.uid]

    def _finish(self, uid: str, event: DeviceEvent) -> Applied | Refused:
        held = self._pods.get(uid)
        if held is None:
            return Refused(uid, "unknown", event, f"{event.value}: pod {uid} has no devices")
        entry = self._nodes[held.node]
        positions = [entry.ids.index(one) for one in held.ids]
        for i in positions:
            state = entry.states[i]
            if (state, event) not in TRANSITIONS:
                detail = f"{event.value} for pod {uid}: device {entry.ids[i]} is {state.value}"
                return Refused(entry.ids[i], state.value, event, detail)
        is_changed = False
        for i in positions:
            after = TRANSITIONS[entry.states[i], event]
            is_changed |= after is not entry.states[i]
            self._set(entry, i, after, uid)
        if event is DeviceEvent.CONFIRM:
            self._pods[uid] = Holding(uid, held.node, held.ids, None)
        else:
            del self._pods[uid]
        self.generation += is_changed
        return Applied((held.node,) if is_changed else ())

    def _health(self, node: str, ids: Sequence[str], event: DeviceEvent) -> Applied | Refused:
        positions = self._positions(node, ids, event)
        if isinstance(positions, Refused):
            return positions
        entry = self._nodes[node]
        losers: dict[str, None] = {}
        is_changed = False
        for i in positions:
            after, owner = TRANSITIONS[entry.states[i], event], entry.owners[i]
            is_changed |= after is not entry.states[i]
            if owner is not None and after not in OWNED:
                losers[owner] = None
                self._keep(self._pods[owner], (entry.ids[i],))
            self._set(entry, i, after, owner)
        self.generation += is_changed
        return Applied((node,) if is_changed else (), tuple(losers))

    def _set(self, entry: _Node, i: int, state: DeviceState, owner: str | None) -> None:
        self._counts[entry.states[i]] -= 1
        self._counts[state] += 1
        entry.states[i] = state
        entry.owners[i] = owner if state in OWNED else None
        bit = 1 << i
        entry.free = entry.free | bit if state is DeviceState.FREE else entry.free & ~bit
