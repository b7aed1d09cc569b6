"""The one way in: every input of an engine passes here and, where wanted, into the decision log.

What it answers: nothing of its own; it hands on and records. The shells call the engine and the
live cluster through it alone, so that nothing that decides can be forgotten in the log. What is
only read (`engine`, `cluster`) needs no desk, nor does what changes no answer: machine types built
elsewhere, effects taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from extender.decision_log.codec import Freshness, input_as_json
from extender.decision_log.writer import RECORDED
from extender.errors import DecisionLogError, MalformedPod, UserError, WireError
from extender.protocol import messages, parse_pod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from extender.bind import ReadPod, Step, WriteBinding, Written
    from extender.decision_log.writer import DecisionLog
    from extender.engine import Engine
    from extender.preemption import NodesRead, ReadNodes
    from extender.protocol import Answer, PodRequest, Verb
    from extender.state import LiveCluster
    from extender.unschedulable import Wake
    from kube.objects import NodeFacts, PodFacts, PodObject

__all__ = ["Desk", "LiveDesk"]


class Desk:
    """The way in to an engine over an embedded cluster, and what both kinds have in common.

    `log_ended` is told, once, that the decision log could not be written and ends there.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        log: DecisionLog | None = None,
        log_ended: Callable[[DecisionLogError], None] | None = None,
    ) -> None:
        self.engine = engine
        self._log = log
        self._log_ended = log_ended

    def answer(self, verb: Verb, body: bytes, now_s: float) -> Answer:
        """Answer a verb that needs nobody else."""
        answer = self.engine.answer(verb, body, now_s)
        if verb in RECORDED:
            self._record(lambda log: log.record(verb, body, now_s, answer))
        return answer

    def _record(self, write: Callable[[DecisionLog], None]) -> None:
        if self._log is None:
            return
        try:
            write(self._log)
        except DecisionLogError as error:
            self._log = None
            if self._log_ended is not None:
                self._log_ended(error)


class LiveDesk(Desk):
    """The way in to an engine over a live cluster.

    A live cluster settles what it was fed when somebody reads it, many inputs at once. Who reads
    first may be a metrics scrape, which is no decision and not in the log; so a run that is to be
    replayed settles after each input, as its replay does (`settles_each`).
    """

    def __init__(
        self,
        engine: Engine,
        cluster: LiveCluster,
        *,
        log: DecisionLog | None = None,
        log_ended: Callable[[DecisionLogError], None] | None = None,
        settles_each: bool = False,
    ) -> None:
        super().__init__(engine, log=log, log_ended=log_ended)
        self.cluster = cluster
        self._settles_each = settles_each or log is not None

    # The feed.

    def see_node(self, node: NodeFacts) -> None:
        """A node as the watch shows it."""
        self.cluster.see_node(node)
        self._fed("see_node", node)

    def lose_node(self, name: str) -> None:
        """A node is gone."""
        self.cluster.lose_node(name)
        self._fed("lose_node", name)

    def replace_nodes(self, nodes: Iterable[NodeFacts]) -> None:
        """A complete list of nodes: what is not in it is gone."""
        listed = tuple(nodes)
        self.cluster.replace_nodes(listed)
        self._fed("replace_nodes", listed)

    def see_pod(self, pod: PodFacts) -> None:
        """An assigned pod as the metadata watch shows it."""
        self.cluster.see_pod(pod)
        self.engine.pod_bound(pod.uid)
        self._fed("see_pod", pod)

    def lose_pod(self, uid: str) -> None:
        """An assigned pod ended or is gone."""
        self.cluster.lose_pod(uid)
        self.engine.pod_ended(uid)
        self._fed("lose_pod", uid)

    def replace_pods(self, pods: Iterable[PodFacts]) -> None:
        """A complete list of assigned pods: what was seen and is not in it is gone."""
        listed = tuple(pods)
        self.cluster.replace_pods(listed)
        for pod in listed:
            self.engine.pod_bound(pod.uid)
        self._fed("replace_pods", listed)

    def see_foreign(self, pod: PodObject) -> None:
        """An assigned pod, read in full as a probe asked for."""
        self.cluster.see_foreign(pod)
        self._fed("see_foreign", pod)

    def see_nominated(self, pod: PodObject) -> None:
        """A pending pod that is nominated to a node, as the watch shows it in full."""
        nominated = self._nomination(pod)
        if nominated is None:
            self.cluster.lose_nominated(pod.uid)
        else:
            self.cluster.see_nominated(*nominated)
        self._fed("see_nominated", pod)

    def lose_nominated(self, uid: str) -> None:
        """The pod is nominated no more, is bound or is gone."""
        self.cluster.lose_nominated(uid)
        self._fed("lose_nominated", uid)

    def replace_nominated(self, pods: Iterable[PodObject]) -> None:
        """A complete list of nominated pods: what is not in it is nominated no more."""
        listed = tuple(pods)
        nominated = [one for pod in listed if (one := self._nomination(pod)) is not None]
        self.cluster.replace_nominated(nominated)
        self._fed("replace_nominated", listed)

    def set_freshness(self, *, is_synced: bool, observed_at_s: float | None) -> None:
        """How fresh the watches are."""
        self.cluster.set_freshness(is_synced=is_synced, observed_at_s=observed_at_s)
        self._fed("set_freshness", Freshness(is_synced, observed_at_s))

    def expire(self, now_s: float) -> None:
        """Time passed: drop assumptions that nobody confirmed and no bind under way stands on."""
        self.cluster.expire(now_s, under_way=self.engine.binds.under_way)
        self._fed("expire", now_s)

    # Bind.

    def turn_of(self, body: bytes) -> str | None:
        """The node where binds take turns, since its kubelet aligns to NUMA nodes; else None."""
        try:
            node = messages.decode(messages.BindingArgs, body).node
        except WireError:
            return None
        return node if self.cluster.aligns(node) else None

    def n_ended(self, node: str) -> int:
        """How many pods ended on the node so far: what they had, its kubelet may give again."""
        return self.cluster.n_ended(node)

    def begin_bind(self, body: bytes, now_s: float) -> Answer | Step:
        """A bind call came: answer it, or say what to do first."""
        output = self.engine.begin_bind(body, now_s)
        self._settle()
        self._record(lambda log: log.begin("begin_bind", body, now_s, output))
        return output

    def pod_read(self, step: ReadPod, pod: bytes | None, now_s: float) -> Answer | Step:
        """The pod's JSON as the API server gave it; None for 404."""
        output = self.engine.pod_read(step, pod, now_s)
        self._settle()
        self._record(lambda log: log.read(step, pod, now_s, output))
        return output

    def binding_written(self, step: WriteBinding, written: Written, now_s: float) -> Answer | Step:
        """How writing the Binding ended."""
        output = self.engine.binding_written(step, written, now_s)
        self._settle()
        self._record(lambda log: log.written(step, written, now_s, output))
        return output

    def abandon(self, step: Step, detail: str, now_s: float) -> Answer:
        """The step will not be finished: out of time, a failed read, a shutdown.

        Must be called for each step that ends in neither of the above.
        """
        output = self.engine.abandon(step, detail, now_s)
        self._settle()
        self._record(lambda log: log.abandoned("abandon", step, detail, now_s, output))
        return output

    # Preempt.

    def begin_preempt(self, body: bytes, now_s: float) -> Answer | ReadNodes:
        """A preempt call came: answer it, or say which nodes to read first."""
        output = self.engine.begin_preempt(body, now_s)
        self._settle()
        self._record(lambda log: log.begin("begin_preempt", body, now_s, output))
        return output

    def nodes_read(self, step: ReadNodes, read: NodesRead, now_s: float) -> Answer | ReadNodes:
        """The nodes, pods and budgets as the API server gave them."""
        output = self.engine.nodes_read(step, read, now_s)
        self._settle()
        self._record(
            lambda log: log.nodes_read(step, input_as_json("nodes_read", read), now_s, output)
        )
        return output

    def abandon_preempt(self, step: ReadNodes, detail: str, now_s: float) -> Answer:
        """Nobody will read the nodes. Must be called for each step that is not finished."""
        output = self.engine.abandon_preempt(step, detail, now_s)
        self._settle()
        self._record(lambda log: log.abandoned("abandon_preempt", step, detail, now_s, output))
        return output

    # Waking parked pods.

    def wakes(self, now_s: float) -> tuple[Wake, ...]:
        """Take the pods to wake now; call after each batch of the feed and about twice a second."""
        freed = sorted(self.cluster.take_freed())
        n_parked = self.engine.parked.n_pods
        wakes = self.engine.wakes(freed, now_s)
        if freed or n_parked:
            self._record(lambda log: log.wakes(now_s, wakes))
        return wakes

    def sleep_on(self, uid: str) -> None:
        """A pod to wake is gone, bound or woken by another replica: it is parked here no more."""
        self.engine.pod_bound(uid)
        self._fed("sleep_on", uid)

    # Inside.

    def _fed(self, what: str, value: object) -> None:
        self._record(lambda log: log.feed(what, input_as_json(what, value)))
        self._settle()

    def _settle(self) -> None:
        if self._settles_each:
            _ = self.cluster.snapshot

    def _nomination(self, pod: PodObject) -> tuple[PodRequest, str] | None:
        """What is claimed for a pod, and where; None where it asks for no GPU or is not waiting."""
        if pod.nominated_node is None or pod.node_name is not None:
            return None
        if pod.is_deleting or pod.is_terminal:
            # Its nomination stays written on it, but nobody schedules it any more.
            return None
        try:
            content = messages.decode(messages.Pod, pod.body)
            request = parse_pod(content, self.engine.rules.resources)
        except (WireError, MalformedPod, UserError):
            return None
        return None if request.shape is None else (request, pod.nominated_node)
