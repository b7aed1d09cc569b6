"""The live cluster's state: what the watches tell, as one ledger and one snapshot.

What it answers: who has which device on which node now, from nodes, pods, nominations and bindings
under way, and the snapshot to decide from. It does no I/O, never reads a clock and never chooses a
node.

What is known is kept as it was told (`extender.state.node_record`, `extender.state.pods`); an input
only notes which nodes it concerns. Whoever reads next has these settled first: their accounts are
made anew from what is known (`extender.state.accounting`), and the ledger and the snapshot are
brought in line (`extender.state.ledger_sync`). So any number of inputs costs one settling, nobody
takes a device that a nomination waits for, and a restart, which learns the same, has the same
devices free.

The sources (nodes, assigned pods, nominated pods, bindings, readings in full) may interleave in any
way; each one's own order is kept.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from extender.placement import Rater, Refusal, plan_bind
from extender.snapshot import make_snapshot, make_view, with_masks
from extender.state.accounting import make_account
from extender.state.debug_json import node_json
from extender.state.effect_rules import tell_pod
from extender.state.effects import NodeProblem
from extender.state.interface import BoundPod
from extender.state.ledger import Ledger, Refused
from extender.state.ledger_sync import let_go, take
from extender.state.machine_types import Kinds
from extender.state.node_record import BY_COUNT, NodeReader, fingerprint, mask_of
from extender.state.pod_record import PodStage
from extender.state.pods import PodBook
from extender.state.transitions import DeviceEvent
from topology.annotations import encode_plan
from topology.topology_manager import manager_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from extender.protocol import PodRequest
    from extender.snapshot import ClusterSnapshot, MachineType, NodeView
    from extender.state.accounting import Account
    from extender.state.effects import Effect
    from extender.state.ledger_sync import Standing
    from extender.state.node_record import NodeRecord
    from extender.state.pod_record import PodRecord
    from extender.state.transitions import DeviceState
    from kube.objects import NodeFacts, PodFacts, PodObject
    from topology.annotations import Plan
    from topology.model import NodeTopology
    from topology.value import Demand

__all__ = ["LiveCluster"]


class LiveCluster:
    """Nodes and pods as the API server tells them. One writer, on the event loop."""

    def __init__(self, resources: Sequence[str], *, demand: Demand) -> None:
        self._kinds = Kinds(demand)
        self._reader = NodeReader(resources, self._kinds)
        self._rater = Rater()
        self._ledger = Ledger()
        self._nodes: dict[str, NodeRecord] = {}
        self._book = PodBook(resources, self._nodes)
        # Accounts of the nodes on which something is claimed, contested or unlocated.
        self._notes: dict[str, Account] = {}
        self._claimed: dict[str, None] = {}
        self._snapshot = make_snapshot(())
        self._is_restructured = False
        self._is_synced = False
        self._observed_at_s: float | None = None
        self._freed: set[str] = set()

    # The feed.

    def see_node(self, facts: NodeFacts) -> None:
        """A node as it is now. Builds its machine type if nobody has offered it."""
        old = self._nodes.get(facts.name)
        if old is not None and old.fingerprint == fingerprint(facts):
            return
        node = self._reader.read(facts)
        told = () if old is None else old.problems
        for problem in node.problems:
            if problem not in told:
                self._book.effects[NodeProblem(node.name, problem)] = None
        if old is None or old.ids != node.ids:
            self._ledger.remove_node(node.name)
            self._ledger.add_node(node.name, node.ids)
        self._is_restructured |= old is None or old.index_key != node.index_key
        self._nodes[node.name] = node
        self._book.touched[node.name] = None

    def lose_node(self, name: str) -> None:
        """A node is gone. Its pods stay known: it may come back."""
        if self._nodes.pop(name, None) is not None:
            self._ledger.remove_node(name)
            self._notes.pop(name, None)
            self._claimed.pop(name, None)
            del self._book.n_ended[name]
            self._is_restructured = True

    def replace_nodes(self, nodes: Iterable[NodeFacts]) -> None:
        """A complete list: what is not in it is gone."""
        listed = {facts.name: facts for facts in nodes}
        for name in [name for name in self._nodes if name not in listed]:
            self.lose_node(name)
        for facts in listed.values():
            self.see_node(facts)

    def see_pod(self, facts: PodFacts) -> None:
        """An assigned pod that has not ended, by its metadata."""
        self._book.see(facts)

    def lose_pod(self, uid: str) -> None:
        """A pod ended, was deleted, or was never there: its devices are free."""
        self._book.lose(uid)

    def replace_pods(self, pods: Iterable[PodFacts]) -> None:
        """A complete list: a pod that was seen and is not in it is gone.

        A pod whose binding was accepted, or may be under way, stays: the list may be older.
        """
        self._book.replace(pods)

    def see_foreign(self, pod: PodObject) -> None:
        """A pod as a reading in full shows it, as a `Probe` asked for.

        Nothing for a pod that was lost meanwhile.
        """
        self._book.read(pod)

    def see_nominated(self, request: PodRequest, node: str) -> None:
        """A pending pod is nominated to the node: the best set there is claimed for it."""
        self._book.nominate(request, node)

    def lose_nominated(self, uid: str) -> None:
        """The pod is nominated no more, is bound or is gone."""
        self._book.end_nomination(uid)

    def replace_nominated(self, nominated: Iterable[tuple[PodRequest, str]]) -> None:
        """A complete list: what is not in it is nominated no more."""
        self._book.replace_nominated(nominated)

    def set_freshness(self, *, is_synced: bool, observed_at_s: float | None) -> None:
        """How fresh the watches are: complete, and heard of up to when (None: they cannot lag)."""
        if is_synced and not self._is_synced:
            unknown = (name for name in self._book.homes() if name not in self._nodes)
            self._book.touched |= dict.fromkeys(unknown)
        self._is_synced, self._observed_at_s = is_synced, observed_at_s

    def expire(self, now_s: float, *, under_way: Collection[str] = ()) -> None:
        """Drop the assumptions whose deadline is not after `now_s`, unless the pod is bound.

        Only those whose deadline the watches were heard of after, and not those of pods with a
        binding under way. A pod whose binding was accepted but that no watch has shown is probed
        instead.
        """
        if self._is_synced:
            observed_at_s = math.inf if self._observed_at_s is None else self._observed_at_s
            self._book.expire(now_s, observed_at_s, under_way)

    # Machine types, which may take a second to build: the feed does that off the event loop.

    def unbuilt(self, facts: NodeFacts) -> NodeTopology | None:
        """The topology whose machine type `see_node` would have to build, None if there is none."""
        return self._reader.unbuilt(facts)

    def offer_machine(self, machine: MachineType) -> None:
        """A machine type built elsewhere (`machine_types.build_machine_type`), same demand."""
        self._kinds.offer(machine)

    # Reading.

    @property
    def ledger(self) -> Ledger:
        """The account of devices, up to date; for reading."""
        self._settle()
        return self._ledger

    @property
    def snapshot(self) -> ClusterSnapshot:
        """The cluster now; the same object until something changes."""
        self._settle()
        snapshot = self._snapshot
        freshness = self._is_synced, self._observed_at_s
        if (snapshot.is_synced, snapshot.observed_at_s) != freshness:
            self._snapshot = snapshot = replace(
                snapshot, is_synced=self._is_synced, observed_at_s=self._observed_at_s
            )
        return snapshot

    @property
    def n_pods(self) -> int:
        """Number of pods known to have a node, as far as they may have devices."""
        return self._book.n_bound

    def snapshot_for(self, request: PodRequest) -> ClusterSnapshot:
        """The cluster as this pod may use it.

        Free beside what is free: what the pod itself has claimed or assumed, and what pods of
        strictly lower priority have claimed. The same object as `snapshot` where nothing differs.
        """
        snapshot = self.snapshot
        own = self._ledger.holding(request.uid)
        if own is None and not self._claimed:
            return snapshot
        names = dict(self._claimed)
        if own is not None:
            names[own.node] = None
        masks = {name: self._free_for(request, name) for name in names}
        changed = {name: mask for name, mask in masks.items() if mask != snapshot.nodes[name].free}
        return snapshot.with_free(changed, snapshot.generation) if changed else snapshot

    def bound(self, uid: str) -> BoundPod | None:
        """The pod with its node, if the API server accepted or showed it and the node is known."""
        pod = self._book.get(uid)
        if pod is None or pod.stage is PodStage.ASSUMED or pod.is_guess or pod.home is None:
            return None
        plan = pod.home_plan
        text = None if plan is None else encode_plan(plan)
        return BoundPod(uid, pod.namespace, pod.name, pod.home, text)

    def aligns(self, name: str) -> bool:
        """Whether the node's kubelet confines what is planned there; settles nothing."""
        node = self._nodes.get(name)
        return node is not None and node.machine is not None and manager_of(node.report) is not None

    def n_ended(self, name: str) -> int:
        """How many pods ended on the node since it is known; settles nothing."""
        return self._book.n_ended[name]

    def counts(self) -> Mapping[DeviceState, int]:
        """Number of devices in each state."""
        return self.ledger.counts

    def as_json(self) -> dict[str, object]:
        """Everything, for people."""
        snapshot = self.snapshot
        return {
            "generation": snapshot.generation,
            "is_synced": self._is_synced,
            "nodes": {name: self._node_json(self._nodes[name]) for name in snapshot.positions},
        }

    # Bind.

    def assume(self, request: PodRequest, plan: Plan, *, deadline_s: float) -> Refused | None:
        """Keep the plan's devices for a binding under way, or say why not and change nothing.

        May take what `snapshot_for` counts as free; the pod's earlier assumption is replaced.
        Without `confirm` or a watch event it ends at `deadline_s`.
        """
        self._settle()
        known, node = self._book.get(request.uid), self._nodes.get(plan.node)
        if known is not None and known.stage is not PodStage.ASSUMED:
            stage = known.stage.value
            return _refused(request, request.uid, stage, f"its binding is {stage} already")
        if node is None:
            return _refused(request, plan.node, "unknown", f"node {plan.node} is not known")
        free = self._free_for(request, plan.node)
        for one in plan.ids:
            if not mask_of((one,), node.positions) & free:
                states = {id_: state.value for id_, state, _ in self._ledger.states(node.name)}
                state = states.get(one, "unknown")
                return _refused(request, one, state, f"device {one} of node {node.name} is {state}")
        self._book.assume(request, plan, resource=node.resource, deadline_s=deadline_s)
        return None

    def renew(self, uid: str, *, deadline_s: float) -> None:
        """The binding is written once more: its assumption ends at `deadline_s` at the earliest."""
        self._book.renew(uid, deadline_s)

    def confirm(self, uid: str) -> None:
        """The API server accepted the binding. Nothing for a pod of which a watch told more."""
        self._book.confirm(uid)

    def forget(self, uid: str) -> None:
        """The binding certainly came to nothing. Nothing for a pod that is bound."""
        self._book.forget(uid)

    # What others have to do.

    def take_effects(self) -> tuple[Effect, ...]:
        """What is to be read or told since last asked, in order, each once."""
        self._settle()
        effects, self._book.effects = tuple(self._book.effects), {}
        return effects

    def take_freed(self) -> frozenset[str]:
        """Nodes on which some pod can have more than before, since last asked.

        What a nomination waited for and now has counts too: it is free for that pod. So does what
        it had and has no more: it is free for the others.
        """
        self._settle()
        freed, self._freed = frozenset(self._freed & self._nodes.keys()), set()
        return freed

    # Settling.

    def _settle(self) -> None:
        """Bring ledger and snapshot in line with what is known."""
        if not (self._book.touched or self._is_restructured):
            return
        touched, self._book.touched = self._book.touched, {}
        changed: list[tuple[NodeRecord, Account, Standing]] = []
        for name in touched:
            node, pods = self._nodes.get(name), self._book.at_home(name)
            if node is not None:
                nominations = self._book.nominated_to(name)
                account = make_account(node, pods, nominations, partial(self._choose, node))
                changed.append((node, account, let_go(self._ledger, name, account)))
            elif self._is_synced:
                self._look_for(pods)
        self._show({one[0].name: self._settle_node(*one) for one in changed})
        if self._kinds.is_crowded:
            machines = (node.machine for node in self._nodes.values())
            self._kinds.keep(one for one in machines if one is not None)

    def _settle_node(self, node: NodeRecord, account: Account, left: Standing) -> NodeView:
        take(self._ledger, node, account, left)
        old, view = self._shown(node.name), self._view(node, account)
        if old is None or old.kind is not view.kind or old.ids != view.ids:
            if view.free or account.claims:
                self._freed.add(node.name)
        elif account.has_gained(self._notes.get(node.name), old.free):
            self._freed.add(node.name)
        elif view.kind.manager is not None and view.state != old.state:
            # With less free the kubelet may turn to other NUMA nodes, where a pod is better off.
            self._freed.add(node.name)
        if account.claims or account.contested or account.unlocated:
            self._notes[node.name] = account
        else:
            self._notes.pop(node.name, None)
        if account.claims:
            self._claimed[node.name] = None
        else:
            self._claimed.pop(node.name, None)
        for pod in self._book.at_home(node.name):
            tell_pod(self._book, node, account, pod)
        return view

    def _show(self, views: Mapping[str, NodeView]) -> None:
        old = self._snapshot
        changed = [view for name, view in views.items() if not _is_same(view, self._shown(name))]
        if (changed or self._is_restructured) and self._ledger.generation == old.generation:
            # A kind or a zone changed, which is no concern of the ledger.
            self._ledger.generation += 1
        generation = self._ledger.generation
        if self._is_restructured:
            self._is_restructured = False
            self._snapshot = make_snapshot(
                [views.get(name) or old.nodes[name] for name in self._nodes],
                generation=generation,
                has_soft_taints=any(node.index_key[1] for node in self._nodes.values()),
            )
        elif changed or generation != old.generation:
            self._snapshot = old.with_views(changed, generation)

    def _choose(self, node: NodeRecord, account: Account, request: PodRequest) -> int:
        """The set that a nominated pod would get now, as a mask; 0 for none."""
        plan = plan_bind(request, self._view(node, account), rater=self._rater, generation=0)
        return 0 if isinstance(plan, Refusal) else mask_of(plan.ids, node.positions)

    def _view(self, node: NodeRecord, account: Account) -> NodeView:
        label, machine = node.label, node.machine
        if account.unlocated and machine is not None:
            label, machine = BY_COUNT, None
        kind = self._kinds.kind(label, node.resource, machine, manager_of(node.report))
        free, reserved = account.free, account.claimed
        old = self._shown(node.name)
        if old is not None and old.kind is kind and old.ids == node.ids and old.zone == node.zone:
            return with_masks(old, free=free, reserved=reserved)
        return make_view(
            node.name, zone=node.zone, kind=kind, ids=node.ids, free=free, reserved=reserved
        )

    def _shown(self, name: str) -> NodeView | None:
        """The node as the snapshot has it, None where it is new."""
        position = self._snapshot.positions.get(name)
        return None if position is None else self._snapshot.views[position]

    def _free_for(self, request: PodRequest, name: str) -> int:
        """The mask of what a pod may have on a node."""
        free = self._snapshot.nodes[name].free
        note, known = self._notes.get(name), self._book.get(request.uid)
        for claim in () if note is None else note.claims:
            if claim.uid == request.uid or claim.priority < request.priority:
                free |= claim.mask
        own = self._ledger.holding(request.uid)
        is_assumed = known is not None and known.stage is PodStage.ASSUMED
        if is_assumed and own is not None and own.node == name:
            node = self._nodes[name]
            free |= mask_of(own.ids, node.positions) & ~node.unhealthy
        return free

    def _look_for(self, pods: Iterable[PodRecord]) -> None:
        """Pods whose plan names a node that is not there may be elsewhere."""
        for pod in pods:
            if pod.body is None and not pod.was_probed:
                self._book.probe(pod)

    def _node_json(self, node: NodeRecord) -> dict[str, object]:
        view, note = self._snapshot.nodes[node.name], self._notes.get(node.name)
        return node_json(node, view, note, self._ledger.states(node.name), self._book.name_of)


def _refused(request: PodRequest, subject: str, state: str, detail: str) -> Refused:
    event = DeviceEvent.ASSUME
    return Refused(subject, state, event, f"{event.value} for pod {request.uid}: {detail}")


def _is_same(view: NodeView, old: NodeView | None) -> bool:
    """Whether nothing of a node changed but its zone or taint."""
    return old is not None and view.state == old.state and view.ids == old.ids
