"""The independent checker: what etcd's revisions say about plans, and nothing else.

Checks whether the history of a cluster keeps Coterie's promises. It reads every revision of every
Pod and Node from etcd's own JSON gateway (the API server stores JSON, see `--storage-media-type`)
and imports nothing of Coterie: a fault in our code cannot hide itself here. It never calls the
extender, and never changes anything.

What it holds for true, at every revision:

- A GPU pod gets its plan in the revision that sets `spec.nodeName`, and keeps both as long as it is
  there. (A pod that is created with a node was never bound, so that it may lack a plan.)
- The plan names that node and exactly the containers that request GPUs, each with as many ids as it
  requests, all of them devices of the node. Apps and sidecars share none; an init container shares
  none with the sidecars that were started before it; all together hold the pod's effective request.
- No id is in two live plans. A plan is live from the revision that binds its pod until the revision
  that makes the phase terminal or removes the object.
- A node whose topology was never published, or that holds a GPU pod without plan, may get pods
  without a plan, yet never more than it has devices.

Waiting. A pod *waits while a node fits* over a stretch of time in which it was unbound, ungated and
not deleted, its last attempt had not ended in an error of the scheduler (`SchedulerError`, which
backs off), and at each moment some node fitted. Whether a set of free ids fits is for the caller to
say (`Fits`), since only the core knows which sets satisfy a pod. `Checker.longest_waits` has the
longest such stretch of each pod, less what falls into excused windows.
"""

from __future__ import annotations

import asyncio
import base64
import json
import math
import time
from collections import Counter
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Self

import aiohttp

from tests.cluster.control.api import open_session

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence

__all__ = [
    "Change",
    "Checker",
    "Fault",
    "FaultKind",
    "Fits",
    "Follower",
    "NodeState",
    "PodState",
    "Role",
    "current_revision",
    "read_changes",
]

RESOURCE = "nvidia.com/gpu"
PLAN = "coterie.gpu/plan"
_PREFIX = "coterie.gpu/"
_WRITTEN_BY_COTERIE = frozenset({PLAN, "coterie.gpu/allocated", "coterie.gpu/retry"})
_PODS, _NODES = "/registry/pods/", "/registry/minions/"
_ENDED = frozenset({"Succeeded", "Failed"})
_ALL_KEYS = base64.b64encode(b"\0").decode()
_SHORTEST_STRETCH_S = 0.5
"""Stretches below this are not worth remembering."""


@dataclass(frozen=True, slots=True)
class Change:
    """One revision of one object; `value` is None where it was removed, `at_s` when we saw it."""

    revision: int
    at_s: float
    key: str
    value: Mapping[str, Any] | None


class Role(Enum):
    """What kind of container requests the GPUs."""

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """A container that requests GPUs, init containers first, in the order of the pod."""

    container: str
    role: Role
    size: int


@dataclass(frozen=True, slots=True)
class PodState:
    """A pod at one revision. `wishes` are the user's own Coterie annotations, sorted."""

    uid: str
    namespace: str
    name: str
    node: str | None
    phase: str
    is_gated: bool
    is_deleting: bool
    plan: str | None
    requests: tuple[GpuRequest, ...]
    wishes: tuple[tuple[str, str], ...]
    scheduler: str
    priority: int
    reason: str
    message: str

    @property
    def is_live(self) -> bool:
        """Whether it holds what was planned for it."""
        return self.node is not None and self.phase not in _ENDED

    @property
    def size(self) -> int:
        """The effective request: what kube-scheduler counts."""
        sidecars, most = 0, 0
        for request in self.requests:
            if request.role is Role.SIDECAR:
                sidecars += request.size
            elif request.role is Role.INIT:
                most = max(most, sidecars + request.size)
        return max(most, sidecars + sum(a.size for a in self.requests if a.role is Role.APP))

    @property
    def shape(self) -> object:
        """Equal for pods that request the same thing."""
        return self.requests, self.wishes

    @property
    def full_name(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node at one revision. `ids` are those of its topology; empty where none is published."""

    name: str
    ids: frozenset[str]
    unhealthy: frozenset[str]
    allocatable: int
    is_cordoned: bool
    labels: Mapping[str, str]


class FaultKind(Enum):
    """A broken promise."""

    NO_PLAN = "bound without a plan"
    BAD_PLAN = "plan cannot be read"
    WRONG_NODE = "plan names another node"
    WRONG_CONTAINERS = "plan names other containers"
    WRONG_SIZE = "plan gives another number of devices"
    UNKNOWN_ID = "plan names a device that the node has not"
    SHARED_ID = "plan gives a device to two containers that hold it side by side"
    OVERLAP = "device is in two live plans"
    OVERCOMMIT = "node has more GPUs given away than it has"
    UNKNOWN_NODE = "bound to a node that is not there"
    BOUND_AGAIN = "bound pod moved to another node, or was unbound"
    PLAN_CHANGED = "plan of a bound pod changed"
    REVIVED = "ended pod became live again"


@dataclass(frozen=True, slots=True)
class Fault:
    """What was broken, by which pod, from which revision on."""

    kind: FaultKind
    pod: str
    revision: int
    detail: str = ""


Fits = Callable[[NodeState, frozenset[str], PodState], bool]
"""Whether a pod could be placed on a node with these ids free; the caller's knowledge."""


@dataclass(slots=True)
class _Queue:
    """Waiting pods that request the same thing.

    `witness` is a node that fits them, None where none does. `since_s` is when each pod began to
    wait while a node fits; infinity where none fits, or while the pod backs off.
    """

    example: PodState
    witness: str | None
    since_s: dict[str, float] = field(default_factory=dict)
    backing_off: set[str] = field(default_factory=set)


class Checker:
    """Takes the changes in the order of their revisions and keeps the faults that it finds.

    `bindings` has each pod that was ever bound as it was at that revision, by uid.
    """

    def __init__(self, *, resource: str = RESOURCE, fits: Fits | None = None) -> None:
        self.faults: list[Fault] = []
        self.pods: dict[str, PodState] = {}
        self.nodes: dict[str, NodeState] = {}
        self.revision = 0
        self.n_bound = 0
        self.n_bound_gpu = 0
        self.bindings: dict[str, PodState] = {}
        self.bound_at_s: dict[str, float] = {}
        self.created_at_s: dict[str, float] = {}
        self._resource = resource
        self._fits = fits
        self._by_uid: dict[str, PodState] = {}
        self._plans: dict[str, frozenset[str]] = {}
        self._holders: dict[str, str] = {}
        self._live: dict[str, set[str]] = {}
        self._free: dict[str, frozenset[str]] = {}
        self._unplanned: dict[str, dict[str, int]] = {}
        self._queues: dict[object, _Queue] = {}
        self._stretches: dict[str, list[tuple[float, float]]] = {}
        self._names: dict[str, str] = {}

    def see(self, change: Change) -> None:
        """Take one change."""
        self.revision = change.revision
        if change.key.startswith(_PODS):
            self._see_pod(change)
        elif change.key.startswith(_NODES):
            self._see_node(change)

    def free_ids(self, node: str) -> frozenset[str]:
        """Devices of the node that are in no live plan and not reported unhealthy."""
        free = self._free.get(node)
        if free is None:
            state = self.nodes[node]
            free = frozenset(i for i in state.ids if i not in self._holders) - state.unhealthy
            self._free[node] = free
        return free

    def unbound(self) -> list[PodState]:
        """Pods that no node has, ended ones aside."""
        return [p for p in self.pods.values() if p.node is None and p.phase not in _ENDED]

    def live(self, node: str | None = None) -> list[PodState]:
        """Live GPU pods, of one node or of all."""
        uids: Iterable[str] = self._by_uid if node is None else self._live.get(node, ())
        return [p for uid in uids if (p := self._by_uid[uid]).is_live and p.requests]

    def counts(self) -> Counter[FaultKind]:
        """How often each promise was broken."""
        return Counter(fault.kind for fault in self.faults)

    def longest_waits(
        self, *, until_s: float = math.inf, excused: Sequence[tuple[float, float]] = ()
    ) -> dict[str, float]:
        """The longest stretch that each pod waited while a node fitted, seconds, by pod name.

        Pods that still wait are counted up to `until_s`. Stretches that an excused window cuts are
        judged by their parts.
        """
        stretches = {uid: list(found) for uid, found in self._stretches.items()}
        if until_s < math.inf:
            for queue in self._queues.values():
                for uid, since_s in queue.since_s.items():
                    stretches.setdefault(uid, []).append((since_s, until_s))
        return {
            self._names[uid]: longest
            for uid, found in stretches.items()
            if (longest := max((_longest_part(one, excused) for one in found), default=0.0)) > 0
        }

    def _see_node(self, change: Change) -> None:
        name = change.key.removeprefix(_NODES)
        if change.value is None:
            self.nodes.pop(name, None)
        else:
            self.nodes[name] = _node_state(name, change.value, self._resource)
        self._refit(name, change.at_s)

    def _see_pod(self, change: Change) -> None:
        old = self.pods.get(change.key)
        new = None if change.value is None else _pod_state(change.value, self._resource)
        if new is None:
            self.pods.pop(change.key, None)
        else:
            self.pods[change.key] = new
        if old is not None and (new is None or new.uid != old.uid):
            self._end(old, change)
            old = None
        if new is None:
            return
        if old is not None and old.shape != new.shape:
            self._unwait(old, change.at_s)
        if old is None:
            self._names[new.uid] = new.full_name
            self.created_at_s[new.uid] = change.at_s
        self._by_uid[new.uid] = new
        self._step(old, new, change)

    def _step(self, old: PodState | None, new: PodState, change: Change) -> None:
        was_bound = old is not None and old.node is not None
        if old is not None and was_bound and old.node != new.node:
            self._fault(FaultKind.BOUND_AGAIN, new, change, f"{old.node} -> {new.node}")
        if old is not None and was_bound and old.plan != new.plan:
            self._fault(FaultKind.PLAN_CHANGED, new, change)
        if old is not None and old.phase in _ENDED and new.phase not in _ENDED:
            self._fault(FaultKind.REVIVED, new, change)
        if not was_bound and new.node is not None:
            self._unwait(new, change.at_s)
            self._bind(new, change, is_made_bound=old is None)
        if new.node is not None and not new.is_live:
            self._release(new, change.at_s)
        if new.node is None:
            self._wait(new, change.at_s)

    def _bind(self, pod: PodState, change: Change, *, is_made_bound: bool) -> None:
        self.n_bound += 1
        self.bound_at_s[pod.uid] = change.at_s
        self.bindings[pod.uid] = pod
        if not pod.requests or not pod.is_live:
            return
        self.n_bound_gpu += 1
        node = self.nodes.get(pod.node or "")
        if node is None:
            self._fault(FaultKind.UNKNOWN_NODE, pod, change, str(pod.node))
            return
        self._live.setdefault(node.name, set()).add(pod.uid)
        if pod.plan is None:
            if node.ids and not is_made_bound and not self._unplanned.get(node.name):
                self._fault(FaultKind.NO_PLAN, pod, change, node.name)
            self._unplanned.setdefault(node.name, {})[pod.uid] = pod.size
        else:
            self._hold(pod, node, change)
        self._check_count(pod, node, change)
        self._refit(node.name, change.at_s)

    def _hold(self, pod: PodState, node: NodeState, change: Change) -> None:
        """Check the plan by itself, then against all others."""
        try:
            plan = json.loads(pod.plan or "")
            parts = [(c["name"], c["resource"], tuple(c["ids"])) for c in plan["containers"]]
            planned_node, version = plan["node"], plan["v"]
        except (ValueError, KeyError, TypeError) as error:
            self._fault(FaultKind.BAD_PLAN, pod, change, repr(error))
            return
        if version != 1:
            self._fault(FaultKind.BAD_PLAN, pod, change, f"version {version}")
        if planned_node != node.name:
            self._fault(FaultKind.WRONG_NODE, pod, change, f"{planned_node}, bound to {node.name}")
        named = sorted((name, resource) for name, resource, _ in parts)
        if named != sorted((request.container, self._resource) for request in pod.requests):
            self._fault(FaultKind.WRONG_CONTAINERS, pod, change, str(named))
            return
        self._check_parts(pod, {name: ids for name, _, ids in parts}, change)
        ids = frozenset(one for _, _, found in parts for one in found)
        unknown = ids - node.ids
        if unknown:
            self._fault(FaultKind.UNKNOWN_ID, pod, change, ", ".join(sorted(unknown)))
        for one in sorted(ids):
            holder = self._holders.setdefault(one, pod.uid)
            if holder != pod.uid:
                other = self._names[holder]
                self._fault(FaultKind.OVERLAP, pod, change, f"{one} of {node.name}, by {other}")
        self._plans[pod.uid] = ids

    def _check_parts(
        self, pod: PodState, ids: Mapping[str, tuple[str, ...]], change: Change
    ) -> None:
        """Sizes, and which containers may share devices."""
        kept: set[str] = set()
        inits: set[str] = set()
        for request in pod.requests:
            own = set(ids[request.container])
            if not len(own) == len(ids[request.container]) == request.size:
                detail = f"{request.container}: {len(own)}, requested {request.size}"
                self._fault(FaultKind.WRONG_SIZE, pod, change, detail)
            if own & kept:
                detail = f"{request.container}: {', '.join(sorted(own & kept))}"
                self._fault(FaultKind.SHARED_ID, pod, change, detail)
            if request.role is Role.INIT:
                inits |= own
            else:
                kept |= own
        if len(kept | inits) != pod.size:
            detail = f"{len(kept | inits)} in all, effective request {pod.size}"
            self._fault(FaultKind.WRONG_SIZE, pod, change, detail)

    def _check_count(self, pod: PodState, node: NodeState, change: Change) -> None:
        given = sum(self._by_uid[uid].size for uid in self._live[node.name])
        if given > max(node.allocatable, len(node.ids)):
            detail = f"{node.name}: {given} of {node.allocatable}"
            self._fault(FaultKind.OVERCOMMIT, pod, change, detail)

    def _release(self, pod: PodState, at_s: float) -> None:
        for one in self._plans.pop(pod.uid, ()):
            if self._holders.get(one) == pod.uid:
                del self._holders[one]
        if pod.node is not None:
            self._unplanned.get(pod.node, {}).pop(pod.uid, None)
            live = self._live.get(pod.node, set())
            if pod.uid in live:
                live.remove(pod.uid)
                self._refit(pod.node, at_s)

    def _end(self, pod: PodState, change: Change) -> None:
        self._unwait(pod, change.at_s)
        self._release(pod, change.at_s)
        self._by_uid.pop(pod.uid, None)

    def _wait(self, pod: PodState, at_s: float) -> None:
        if self._fits is None:
            return
        if pod.is_gated or pod.is_deleting or pod.phase in _ENDED:
            self._unwait(pod, at_s)
            return
        queue = self._queues.get(pod.shape)
        if queue is None:
            queue = self._queues[pod.shape] = _Queue(pod, self._find_fitting(pod))
        if pod.reason == "SchedulerError":
            queue.backing_off.add(pod.uid)
            self._turn(queue, pod.uid, at_s)
        elif pod.uid in queue.backing_off or pod.uid not in queue.since_s:
            queue.backing_off.discard(pod.uid)
            self._turn(queue, pod.uid, at_s)

    def _unwait(self, pod: PodState, at_s: float) -> None:
        queue = self._queues.get(pod.shape)
        if queue is None:
            return
        self._close(queue, pod.uid, at_s)
        queue.backing_off.discard(pod.uid)
        if not queue.since_s:
            del self._queues[pod.shape]

    def _turn(self, queue: _Queue, uid: str, at_s: float) -> None:
        """End the pod's stretch and begin the next one, as things stand now."""
        self._close(queue, uid, at_s)
        is_waiting = queue.witness is not None and uid not in queue.backing_off
        queue.since_s[uid] = at_s if is_waiting else math.inf

    def _close(self, queue: _Queue, uid: str, at_s: float) -> None:
        since_s = queue.since_s.pop(uid, math.inf)
        if at_s - since_s >= _SHORTEST_STRETCH_S:
            self._stretches.setdefault(uid, []).append((since_s, at_s))

    def _refit(self, node: str, at_s: float) -> None:
        """Ask again whether the node fits, for all that wait."""
        self._free.pop(node, None)
        for queue in self._queues.values():
            before = queue.witness
            if before is None and self._does_fit(node, queue.example):
                queue.witness = node
            elif before == node and not self._does_fit(node, queue.example):
                queue.witness = self._find_fitting(queue.example)
            if (before is None) != (queue.witness is None):
                for uid in list(queue.since_s):
                    self._turn(queue, uid, at_s)

    def _find_fitting(self, pod: PodState) -> str | None:
        return next((name for name in self.nodes if self._does_fit(name, pod)), None)

    def _does_fit(self, node: str, pod: PodState) -> bool:
        state = self.nodes.get(node)
        if state is None or state.is_cordoned or self._fits is None:
            return False
        return not pod.requests or self._fits(state, self.free_ids(node), pod)

    def _fault(self, kind: FaultKind, pod: PodState, change: Change, detail: str = "") -> None:
        self.faults.append(Fault(kind, pod.full_name, change.revision, detail))


class Follower:
    """Feeds a checker from etcd while a test runs, and lets the test wait for what it sees.

    `from_revision` is the first one that counts; by default all of them do.
    """

    def __init__(self, etcd_url: str, checker: Checker, *, from_revision: int = 1) -> None:
        self.checker = checker
        self._from_revision = from_revision
        self._etcd_url = etcd_url
        self._moved = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            (ending,) = await asyncio.gather(self._task, return_exceptions=True)
            if isinstance(ending, Exception):
                raise ending

    async def until(self, is_so: Callable[[Checker], bool], *, within_s: float) -> float:
        """Wait until something holds; how long it took. Raises `TimeoutError`."""
        begun_s = time.monotonic()
        async with asyncio.timeout(within_s):
            while not is_so(self.checker):
                self._moved.clear()
                if self._task is not None and self._task.done():
                    await self._task
                    msg = f"etcd ended the watch after revision {self.checker.revision}"
                    raise EOFError(msg)
                await self._moved.wait()
        return time.monotonic() - begun_s

    async def catch_up(self, *, within_s: float = 60) -> None:
        """Wait until everything that etcd holds by now was seen."""
        revision = await current_revision(self._etcd_url)
        await self.until(lambda checker: checker.revision >= revision, within_s=within_s)

    async def _run(self) -> None:
        try:
            changes = read_changes(self._etcd_url, from_revision=self._from_revision)
            async with aclosing(changes):
                async for batch in changes:
                    for change in batch:
                        self.checker.see(change)
                    self._moved.set()
        finally:
            self._moved.set()


async def current_revision(etcd_url: str) -> int:
    """The revision of the last change of anything."""
    body = {"key": _ALL_KEYS, "count_only": True}
    async with (
        open_session() as session,
        session.post(f"{etcd_url}/v3/kv/range", json=body) as answer,
    ):
        return int((await answer.json())["header"]["revision"])


async def read_changes(
    etcd_url: str, *, from_revision: int = 1
) -> AsyncGenerator[list[Change], None]:
    """Every change from a revision on, in batches, for ever; other objects without their value.

    Raises `ValueError` where history was compacted away or is not stored as JSON: then nothing
    could be seen from it.
    """
    watch = {
        "create_request": {
            "key": _ALL_KEYS,
            "range_end": _ALL_KEYS,
            "start_revision": str(from_revision),
        }
    }
    timeout = aiohttp.ClientTimeout(total=None)
    async with (
        open_session(timeout=timeout, read_bufsize=1 << 25) as session,
        session.post(f"{etcd_url}/v3/watch", json=watch) as answer,
    ):
        async for line in _lines(answer.content):
            result = json.loads(line)["result"]
            if int(result.get("compact_revision", 0)):
                msg = (
                    f"etcd compacted revision {result['compact_revision']}, expected all revisions "
                    "(--etcd-compaction-interval=0)"
                )
                raise ValueError(msg)
            at_s = time.monotonic()
            yield [_change(event, at_s) for event in result.get("events", ())]


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length: a batch of old revisions is many megabytes."""
    parts: list[bytes] = []
    async for chunk in content.iter_any():
        head, *rest = chunk.split(b"\n")
        parts.append(head)
        for one in rest:
            line, parts = b"".join(parts), [one]
            if line:
                yield line


def _change(event: Mapping[str, Any], at_s: float) -> Change:
    pair = event["kv"]
    key = base64.b64decode(pair["key"]).decode()
    value: Mapping[str, Any] | None = None
    if event.get("type") != "DELETE":
        value = {}
        if key.startswith((_PODS, _NODES)):
            text = base64.b64decode(pair["value"])
            if not text.startswith(b"{"):
                msg = f"{key} is not stored as JSON (--storage-media-type=application/json)"
                raise ValueError(msg)
            value = json.loads(text)
    return Change(int(pair["mod_revision"]), at_s, key, value)


def _pod_state(pod: Mapping[str, Any], resource: str) -> PodState:
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
    annotations: Mapping[str, str] = meta.get("annotations") or {}
    conditions = {c["type"]: c for c in status.get("conditions", ())}
    scheduled = conditions.get("PodScheduled", {})
    return PodState(
        uid=meta["uid"],
        namespace=meta["namespace"],
        name=meta["name"],
        node=spec.get("nodeName") or None,
        phase=status.get("phase", "Pending"),
        is_gated=bool(spec.get("schedulingGates")),
        is_deleting="deletionTimestamp" in meta,
        plan=annotations.get(PLAN),
        requests=tuple(_requests(spec, resource)),
        wishes=tuple(
            sorted(
                (key, value)
                for key, value in annotations.items()
                if key.startswith(_PREFIX) and key not in _WRITTEN_BY_COTERIE
            )
        ),
        scheduler=spec.get("schedulerName", ""),
        priority=spec.get("priority") or 0,
        reason=scheduled.get("reason", "") if scheduled.get("status") == "False" else "",
        message=scheduled.get("message", ""),
    )


def _requests(spec: Mapping[str, Any], resource: str) -> Iterable[GpuRequest]:
    for one in spec.get("initContainers") or ():
        role = Role.SIDECAR if one.get("restartPolicy") == "Always" else Role.INIT
        yield from _request(one, role, resource)
    for one in spec["containers"]:
        yield from _request(one, Role.APP, resource)


def _request(container: Mapping[str, Any], role: Role, resource: str) -> Iterable[GpuRequest]:
    size = int((container.get("resources") or {}).get("limits", {}).get(resource, 0))
    if size:
        yield GpuRequest(container["name"], role, size)


def _node_state(name: str, node: Mapping[str, Any], resource: str) -> NodeState:
    meta = node["metadata"]
    annotations: Mapping[str, str] = meta.get("annotations") or {}
    return NodeState(
        name=name,
        ids=frozenset(_gpu_ids(annotations.get("coterie.gpu/topology"))),
        unhealthy=frozenset(_unhealthy_ids(annotations.get("coterie.gpu/devices"))),
        allocatable=int(node.get("status", {}).get("allocatable", {}).get(resource, 0)),
        is_cordoned=bool(node["spec"].get("unschedulable")),
        labels=meta.get("labels") or {},
    )


def _gpu_ids(text: str | None) -> Iterable[str]:
    try:
        return [gpu["uuid"] for gpu in json.loads(text)["gpus"]] if text else []
    except (ValueError, KeyError, TypeError):
        return []  # an annotation that cannot be read is none, as the contract says


def _unhealthy_ids(text: str | None) -> Iterable[str]:
    return [one["id"] for one in json.loads(text).get("unhealthy", ())] if text else []


def _longest_part(stretch: tuple[float, float], excused: Sequence[tuple[float, float]]) -> float:
    """The longest part of a stretch that lies outside of all windows."""
    begin_s, end_s = stretch
    longest = 0.0
    for from_s, until_s in sorted(excused):
        longest = max(longest, min(from_s, end_s) - begin_s)
        begin_s = max(begin_s, until_s)
    return max(longest, end_s - begin_s)
