"""Which collections of the API server are watched, and what takes each of them.

Nodes, assigned and nominated pods make the state; pending pods have a watch for each scheduler. It
starts none of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from extender.engine import events
from extender.protocol import GROUP_MARKS
from extender.state import KEPT_LABELS, domain_labels
from extender.watch.state_sync import PodSink
from kube.watch import Reflector, watches

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from extender.engine.events import StateEvent
    from extender.rules import Rules
    from extender.watch.node_sync import NodeSink
    from extender.watch.pending_watch import PendingWatch
    from extender.watch.watch_log import WatchLog
    from kube.client import Requester
    from kube.objects import NodeFacts, PodFacts, PodObject

__all__ = ["Reflectors", "StateReflectors"]


class StateReflectors(NamedTuple):
    """Those that the state is made of."""

    nodes: Reflector[NodeFacts]
    pods: Reflector[PodFacts]
    nominated: Reflector[PodObject]


@dataclass(frozen=True, slots=True)
class Reflectors:
    """Makes the reflectors of one extender; `changed` is called after each of their events."""

    requester: Requester
    rules: Rules
    log: WatchLog
    changed: Callable[[], None]

    def of_state(
        self,
        nodes: NodeSink,
        *,
        take_pods: Callable[[StateEvent], None],
        take_nominated: Callable[[StateEvent], None],
        pods_listed: Callable[[], None],
    ) -> StateReflectors:
        """One for each collection; `pods_listed` is called after a list of assigned pods."""
        marks = [key for kind in self.rules.group_kinds for key in GROUP_MARKS[kind]]
        pods = PodSink(
            "assigned_pods",
            (events.PodsListed, events.PodUpdated, events.PodDeleted),
            take_pods,
            changed=self.changed,
            listed=pods_listed,
            log=self.log,
        )
        nominated = PodSink(
            "nominated_pods",
            (events.NominationsListed, events.NominationUpdated, events.NominationDeleted),
            take_nominated,
            changed=self.changed,
            listed=self.changed,
            log=self.log,
            forgets_unread=True,  # it claims nothing
        )
        labels = domain_labels(self.rules.group_families)
        return StateReflectors(
            Reflector(self.requester, watches.nodes(labels, KEPT_LABELS), nodes),
            Reflector(self.requester, watches.assigned_pods(self.rules.resources, marks), pods),
            Reflector(self.requester, watches.nominated_pods(), nominated),
        )

    def of_pending(self, pods: PendingWatch) -> Sequence[Reflector[PodObject]]:
        """One for each scheduler; one without a name for all."""
        names = self.rules.scheduler_names or ("",)
        sources = [
            watches.pending_pods(name, is_one_of_several=len(names) > 1)
            for name in dict.fromkeys(names)
        ]
        return [Reflector(self.requester, one, pods.sink(one.name)) for one in sources]
