"""What the routes of the read API answer, from the newest state.

Each answer is of one generation and has a tag that is equal for equal answers (RFC 9110, entity
tags), so that a client that has it already is sent nothing.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING

from extender.read_api.bodies import CapacityBody, ClusterBody
from extender.read_api.cluster_table import AT_ONCE, ClusterTable
from extender.read_api.encoding import encoder, merged
from extender.read_api.figures import by_size, rounded
from extender.read_api.groups import GroupTable
from extender.read_api.machines import MachinesJson
from extender.read_api.over_time import Changes, History
from extender.read_api.over_time.history import INTERVAL_S
from extender.read_api.pacing import batches, paced
from extender.read_api.paging import ItemsPage, decode_continue
from extender.read_api.pending import PendingTable
from extender.read_api.what_if import WhatIfs
from extender.read_api.would_fit import WouldFit
from topology.cli.program import version

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from extender.engine import Engine
    from extender.read_api.cluster_table import Cluster
    from extender.read_api.groups import GroupTexts
    from extender.read_api.node_entry import NodeEntry
    from extender.read_api.pending import Pending

__all__ = ["ReadApi"]

END_OF_NODE = "~"
"""Behind all names of pods, which have letters, digits, hyphens, dots and a slash alone."""
NOT_READY_S = 1.0
"""Seconds between looks whether the state is complete, at the start."""
AGAIN_S = 60.0
"""Seconds after which the history and the streams begin again where they failed."""


_encode_cluster, _encode_capacity = encoder(ClusterBody), encoder(CapacityBody)


class ReadApi:
    """The read API of one engine.

    `clock` gives the engine's time in Unix seconds, `is_ready` whether its state is complete and
    fresh. Called from the event loop only.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        clock: Callable[[], float],
        is_ready: Callable[[], bool],
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._is_ready = is_ready
        # Generations begin again with each process.
        self._process = format(int(clock() * 1000), "x")
        self._table = ClusterTable(engine.cluster, clock)
        self._pending = PendingTable(engine)
        self._would_fit = WouldFit(engine)
        self._machines = MachinesJson(self._table.figures)
        self.what_ifs = WhatIfs(engine, self._table.refresh, self._table.figures)
        self._groups = GroupTable(engine, self._refresh_both)
        self.changes = Changes(self._refresh_all)
        self.history = History(clock())

    async def refresh(self) -> Cluster:
        """The cluster now."""
        return await self._table.refresh()

    async def refresh_pending(self) -> Pending:
        """The pods that wait now."""
        return await self._pending.refresh()

    async def refresh_groups(self) -> GroupTexts:
        """The groups now, with the cluster that they are of."""
        return await self._groups.refresh()

    async def _refresh_both(self) -> tuple[Cluster, Pending]:
        return await self._table.refresh(), await self._pending.refresh()

    async def _refresh_all(self) -> tuple[GroupTexts, Pending]:
        return await self._groups.refresh(), await self._pending.refresh()

    async def run(self, on_fault: Callable[[Exception], None]) -> None:
        """Feed the streams of changes and the history, until cancelled.

        An unexpected error is given to `on_fault`, and they begin again after `AGAIN_S`: it must
        end nothing that places pods.
        """
        while True:
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self.changes.run())
                    tasks.create_task(self._keep_history())
            except Exception as error:  # noqa: BLE001 - the outer loop, which reports it
                on_fault(error)
            await asyncio.sleep(AGAIN_S)

    async def _keep_history(self) -> None:
        """A point a minute, from when the state is complete."""
        while True:
            if self._is_ready():
                await self.add_to_history()
                await asyncio.sleep(INTERVAL_S)
            else:
                await asyncio.sleep(NOT_READY_S)

    async def add_to_history(self) -> None:
        """Add the points of now."""
        self.history.add(await self._table.refresh(), self._clock())

    def tag(self, cluster: Cluster | None, *more: object) -> str:
        """The entity tag of an answer about a cluster, or none, and what else it tells."""
        parts = more if cluster is None else (cluster.generation, cluster.revision, *more)
        return f'"{self._process}-{".".join(map(str, parts))}"'

    def cluster_tag(self, cluster: Cluster) -> str:
        """That of `cluster`, which is equal while nothing but the time differs."""
        return self.tag(cluster, int(self._is_ready()), self._n_pending)

    @property
    def _n_pending(self) -> int:
        return sum(1 for _ in self._engine.waiting())

    def cluster(self, cluster: Cluster) -> bytes:
        """Sums over the whole cluster."""
        sums = cluster.sums.values()
        body: ClusterBody = {
            "generation": cluster.generation,
            "is_ready": self._is_ready(),
            "version": version(),
            "at_unix_s": round(self._clock(), 3),
            "n_nodes": len(cluster.names),
            "gpus": sum(one.n_gpus for one in sums),
            "gpus_free": sum(one.n_free for one in sums),
            "gpus_stranded": sum(one.n_stranded for one in sums),
            "gpus_unhealthy": sum(one.n_unhealthy for one in sums),
            "gpus_unavailable": sum(one.n_unavailable for one in sums),
            "pods_placed": cluster.n_pods,
            "pods_pending": self._n_pending,
        }
        return _encode_cluster(body)

    def capacity(self, cluster: Cluster) -> bytes:
        """What is free of each machine type, and what it is good for."""
        body: CapacityBody = {
            "generation": cluster.generation,
            "machines": [
                {
                    "topology": key.topology,
                    "machine": key.machine,
                    "resource": key.resource,
                    "nodes": one.n_nodes,
                    "gpus": one.n_gpus,
                    "free": one.n_free,
                    "unhealthy": one.n_unhealthy,
                    "unavailable": one.n_unavailable,
                    "placeable": by_size(one.placeable),
                    "stranded": one.n_stranded,
                    "stranded_since_unix_s": rounded(cluster.stranded_since_s.get(key)),
                    "efficiency": one.efficiency,
                }
                for key, one in cluster.sums.items()
            ],
        }
        return _encode_capacity(body)

    async def machines(self, cluster: Cluster, *, limit: int, after: str | None) -> ItemsPage:
        """The machine types, by digest."""
        names: dict[str, tuple[str, int]] = {}
        for key, one in cluster.sums.items():
            if key.topology is not None:
                name, n_nodes = names.get(key.topology, (key.machine, 0))
                names[key.topology] = name, n_nodes + one.n_nodes
        page, last, n_remaining = _cut(sorted(names), limit, after)
        items = [
            self._machines.of(cluster.machines[digest], *names[digest])
            async for digest in paced(page)
        ]
        return ItemsPage(cluster.generation, items, last, n_remaining)

    async def nodes(
        self,
        cluster: Cluster,
        *,
        limit: int,
        after: str | None,
        machine: str | None = None,
        is_unhealthy: bool = False,
    ) -> ItemsPage:
        """Nodes by name: all, those of a machine type (name or digest), those with bad devices."""
        names: Sequence[str] = cluster.names
        if machine is not None or is_unhealthy:
            names = [
                name
                async for name in paced(names)
                if (machine is None or cluster.entries[name].is_of(machine))
                and (not is_unhealthy or cluster.entries[name].has_unhealthy)
            ]
        page, last, n_remaining = _cut(names, limit, after)
        items = [self._node(cluster.entries[name]) async for name in paced(page)]
        return ItemsPage(cluster.generation, items, last, n_remaining)

    def node(self, cluster: Cluster, name: str) -> bytes | None:
        """One node; None where there is none of the name."""
        entry = cluster.entries.get(name)
        return None if entry is None else self._node(entry)

    async def pods(
        self,
        cluster: Cluster,
        *,
        limit: int,
        after: str | None,
        namespace: str | None = None,
        node: str | None = None,
    ) -> ItemsPage:
        """Placed pods by node, then by name: all, those of a namespace, those on a node."""
        after_node, _, after_name = decode_continue(after).partition(" ") if after else ("", "", "")
        names = cluster.names
        if node is not None:
            names = [node] if node in cluster.entries else []
        prefix = "" if namespace is None else f"{namespace}/"
        items: list[bytes] = []
        last, n_items, n_remaining = "", 0, 0
        names = names[bisect_left(names, after_node) :]
        async for i, name in paced(enumerate(names)):
            entry = cluster.entries[name]
            if namespace is None and name != after_node and 0 < entry.n_pods <= limit - n_items:
                items.append(self._pods_text(entry))
                n_items += entry.n_pods
                last = f"{name} {END_OF_NODE}"
                continue
            if namespace is None and n_items == limit:
                n_remaining += await _count_pods(cluster, names[i:])
                break
            for key, text in self._pods(entry).items():
                if not key.startswith(prefix) or (name == after_node and key <= after_name):
                    continue
                if n_items == limit:
                    n_remaining += 1
                else:
                    items.append(text)
                    n_items += 1
                    last = f"{name} {key}"
        return ItemsPage(cluster.generation, items, last if n_remaining else None, n_remaining)

    async def pod(self, cluster: Cluster, namespace: str, name: str) -> bytes | None:
        """One placed pod; None where there is none of the name."""
        full_name = f"{namespace}/{name}"
        async for entry in paced(cluster.entries.values()):
            text = self._pods(entry).get(full_name) if entry.n_pods else None
            if text is not None:
                return text
        return None

    async def groups(
        self,
        groups: GroupTexts,
        *,
        limit: int,
        after: str | None,
        namespace: str | None = None,
        state: str | None = None,
    ) -> ItemsPage:
        """Groups by name: all, those of a namespace, those in a state."""
        prefix = "" if namespace is None else f"{namespace}/"
        names = groups.keys
        if namespace is not None or state is not None:
            names = [
                name
                async for name in paced(names)
                if name.startswith(prefix) and state in {None, groups.texts[name].state}
            ]
        page, last, n_remaining = _cut(names, limit, after)
        items = [groups.texts[name].json for name in page]
        return ItemsPage(groups.cluster.generation, items, last, n_remaining)

    async def pending(
        self, cluster: Cluster, pending: Pending, *, limit: int, after: str | None
    ) -> ItemsPage:
        """The pods that wait, by name."""
        page, last, n_remaining = _cut(pending.keys, limit, after)
        pods = [pending.pods[key] for key in page]
        would_fit = await self._would_fit.of(cluster, [pod for pod, _ in pods])
        items = [
            merged(text, fits) async for (_, text), fits in paced(zip(pods, would_fit, strict=True))
        ]
        return ItemsPage(cluster.generation, items, last, n_remaining)

    def _node(self, entry: NodeEntry) -> bytes:
        return entry.node_json(self._engine.cluster.pods.name_of)

    def _pods_text(self, entry: NodeEntry) -> bytes:
        return entry.pods_text(self._engine.cluster.pods.on_node(entry.node.name))

    def _pods(self, entry: NodeEntry) -> Mapping[str, bytes]:
        return entry.pods_json(self._engine.cluster.pods.on_node(entry.node.name))


async def _count_pods(cluster: Cluster, names: Sequence[str]) -> int:
    """The placed pods of nodes."""
    n_pods = 0
    async for part in paced(batches(names, AT_ONCE)):
        n_pods += sum(map(attrgetter("n_pods"), map(cluster.entries.__getitem__, part)))
    return n_pods


def _cut(
    keys: Sequence[str], limit: int, after: str | None
) -> tuple[Sequence[str], str | None, int]:
    """The next `limit` of ascending keys, the last of them if more follow, and how many do."""
    begin = 0 if after is None else bisect_right(keys, decode_continue(after))
    page = keys[begin : begin + limit]
    n_remaining = len(keys) - begin - len(page)
    return page, page[-1] if n_remaining else None, n_remaining
