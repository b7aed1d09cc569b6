"""Answers what-ifs one at a time, in turns with pauses, each from the state at one moment.

A recording's tables are built in a thread, as those of a new node are. Nothing is written: neither
to the state, nor to the ratings that the verbs keep, nor to the decision log.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from extender.engine.explain import warn_of_scheduler
from extender.engine.explain_group import warn_of_level
from extender.errors import QueryError
from extender.read_api.encoding import encoder, joined, spliced
from extender.read_api.pacing import drive, paced, pause
from extender.read_api.what_if.answer import (
    capacity,
    group_body,
    not_considered,
    of_groups,
    placement_body,
    sums_after,
)
from extender.read_api.what_if.bodies import PlacementBody, WhatIfAnswer
from extender.read_api.what_if.question import MAX_EVICTED, read_question
from extender.state import build_machine_type
from extender.what_if import (
    RequestedGroup,
    RequestedPod,
    Simulation,
    add_nodes,
    evicted_pods,
    find_kind,
    gather_groups,
    kinds_by_name,
    recorded_kind,
)
from topology.errors import quote
from topology.recordings import load_recording

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from extender.engine import Engine
    from extender.read_api.cluster_table import Cluster
    from extender.read_api.figures import SetFigures
    from extender.read_api.what_if.question import Question
    from extender.snapshot import MachineType, NodeClass, NodeView
    from extender.what_if import SimulatedGroup

__all__ = ["MAX_WAITING", "WhatIfs"]

CONTROLLERS_KIND = "leaderworkerset"
"""The kind whose groups are not in manifests, since its controller writes them."""
MAX_WAITING = 8
"""What-ifs that are answered or wait for their turn."""
MAX_WARNINGS = 16
"""Sentences about annotations in an answer; of further ones it says how many there are."""
MAX_KINDS = 8
"""Recordings whose tables are kept: those of 16 GPUs take some 4 MB."""


_encode, _encode_placement = encoder(WhatIfAnswer), encoder(PlacementBody)


class WhatIfs:
    """The what-ifs of one engine. `refresh` gives the cluster as it is now."""

    def __init__(
        self, engine: Engine, refresh: Callable[[], Awaitable[Cluster]], figures: SetFigures
    ) -> None:
        self._engine = engine
        self._refresh = refresh
        self._figures = figures
        self._lock = asyncio.Lock()
        self._n_waiting = 0
        self._kinds: dict[str, NodeClass] = {}
        self._n_kinds = 0

    async def answer(self, read: Callable[[], Awaitable[bytes]]) -> Iterable[bytes] | None:
        """The answer to a body, as parts of JSON; None where `MAX_WAITING` are under way.

        `read` gives the body, and is called for those that have a place. Raises what it raises, and
        `QueryError` for what is no question about this cluster.
        """
        if self._n_waiting >= MAX_WAITING:
            return None
        self._n_waiting += 1
        try:
            body = await read()
            async with self._lock:
                question = await self._read(body)
                return await self._answer(question)
        finally:
            self._n_waiting -= 1

    async def _read(self, body: bytes) -> Question:
        rules = self._engine.rules
        return await read_question(body, rules.resources, rules.group_kinds)

    async def _answer(self, question: Question) -> Iterable[bytes]:
        cluster = await self._refresh()
        moment, rules = cluster.moment, self._engine.rules
        self._check_drained(question.drain, cluster)
        added = await self._added(question.add, cluster)
        evicted = self._evicted(question.drain, cluster)
        await pause()
        simulation = Simulation(moment, rules, added=added, drained=question.drain)
        placements: list[bytes] = []
        groups: list[SimulatedGroup] = []
        units = gather_groups((*evicted, *question.pods))
        async for one in paced(units):
            if isinstance(one, RequestedGroup):
                placed = await drive(simulation.place_group(self._joined(one, question.drain)))
                groups.append(placed)
                placements.extend(
                    [_encode_placement(placement_body(one)) async for one in paced(placed.members)]
                )
            else:
                lone = await drive(simulation.place(one))
                placements.append(_encode_placement(placement_body(lone)))
        after = sums_after(
            cluster,
            added=added,
            drained=question.drain,
            taken=simulation.taken,
            figures=self._figures,
        )
        await pause()
        keys = sorted(
            {*cluster.sums, *after}, key=lambda key: (key.machine, key.resource, key.topology or "")
        )
        alone = [one.request for one in units if isinstance(one, RequestedPod)]
        body: WhatIfAnswer = {
            "generation": cluster.generation,
            "added": [{"node": view.name, "machine": view.node_class.name} for view in added],
            "drained": list(question.drain),
            "placements": [],
            "groups": [group_body(one) for one in groups],
            "before": capacity(keys, cluster.sums),
            "after": capacity(keys, after),
            "warnings": self._warnings(question.pods),
            "not_considered": not_considered(
                groups=of_groups(
                    groups,
                    has_lone_members=any(one is not None and one.group for one in alone),
                    has_controllers=bool(question.pods) and CONTROLLERS_KIND in rules.group_kinds,
                    has_added=bool(added),
                ),
                is_drained=bool(question.drain),
                unknown=simulation.unknown_labels,
                has_unrated=simulation.has_unrated,
            ),
        }
        return spliced(_encode(body), "placements", joined(placements))

    def _warnings(self, pods: Sequence[RequestedPod]) -> list[str]:
        """What is wrong with these pods, each once."""
        cluster, rules = self._engine.cluster, self._engine.rules
        found = dict.fromkeys(
            text
            for request in (pod.request for pod in pods)
            if request is not None
            for text in (
                *request.warnings,
                *warn_of_level(request, cluster),
                *warn_of_scheduler(request, rules),
            )
        )
        more = len(found) - MAX_WARNINGS
        return [*list(found)[:MAX_WARNINGS], *([f"and {more} more"] if more > 0 else ())]

    @staticmethod
    def _check_drained(names: Sequence[str], cluster: Cluster) -> None:
        for i, name in enumerate(names):
            if name not in cluster.moment.nodes:
                msg = (
                    f"drain.{i} is {quote(name)}, expected the name of a node: the cluster has "
                    f"{len(cluster.moment.nodes)}, none of this name; /api/v1/nodes lists them"
                )
                raise QueryError(msg)

    def _evicted(self, names: Sequence[str], cluster: Cluster) -> list[RequestedPod]:
        pods, recall = self._engine.cluster.pods, self._engine.pending.recall
        evicted = evicted_pods(
            cluster.moment,
            names,
            pod=pods.get,
            recall=recall,
            now=lambda node, pod: cluster.entries[node].rate_of(pod),
        )
        if len(evicted) > MAX_EVICTED:
            msg = (
                f"drain has nodes with {len(evicted)} pods, expected at most {MAX_EVICTED}: drain "
                "fewer at a time"
            )
            raise QueryError(msg)
        return evicted

    def _joined(self, group: RequestedGroup, drained: Sequence[str]) -> RequestedGroup:
        """The group with its members that run already, on nodes that are left."""
        namespace, _, name = group.name.partition("/")
        readings, key = self._engine.groups.readings, (namespace, name)
        near = readings.near(key)
        if near is None:
            return group
        left = [node for node in near.nodes if node not in drained]
        records = (self._engine.cluster.pods.get(uid) for uid in readings.status(key).bound)
        plans = (one.node_plan for one in records if one is not None)
        bound = tuple(one for one in plans if one is not None and one.node not in drained)
        return replace(group, near=replace(near, nodes=left), bound=bound)

    async def _added(
        self, groups: Sequence[tuple[str, int]], cluster: Cluster
    ) -> Sequence[NodeView]:
        if not groups:
            return ()
        known = kinds_by_name(cluster.moment)
        found: list[tuple[str, NodeClass, int]] = []
        for i, (machine, count) in enumerate(groups):
            kind = find_kind(machine, known, where=f"add.{i}")
            found.append((machine, kind or await self._recorded(machine), count))
        return add_nodes(found, cluster.moment.nodes)

    async def _recorded(self, name: str) -> NodeClass:
        """The kind of a recording's nodes."""
        kind = self._kinds.pop(name, None)
        if kind is None:
            machine = await asyncio.to_thread(self._build, name)
            kind = recorded_kind(name, machine, self._engine.rules, self._n_kinds)
            self._n_kinds += 1
        # The one used longest ago comes first.
        self._kinds[name] = kind
        if len(self._kinds) > MAX_KINDS:
            del self._kinds[next(iter(self._kinds))]
        return kind

    def _build(self, name: str) -> MachineType:
        return build_machine_type(load_recording(name), self._engine.rules.demand)
