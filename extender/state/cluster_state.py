"""The live cluster's state: what the watches report, as accounts and one snapshot.

It holds which pod has which device on each node now, from nodes, pods, nominations and bindings in
flight, and the snapshot to decide from. It does no I/O, never reads a clock and never chooses a
node.

Facts are kept as they were reported (`extender.state.node_record`, `extender.state.pods`); an input
only notes which nodes it concerns. The next read reconciles these first: their accounts are made
from the facts (`extender.state.accounting`), and all else is derived from the accounts: the
snapshot, the states of devices and the generation (`extender.state.device_states`). So any number
of inputs costs one reconciliation, a device that a nomination waits for is never offered to another
pod, and a restart, which reads the same facts, has the same devices free.

Sources (nodes, assigned pods, nominated pods, bindings) may interleave; each one's order is kept.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from extender.placement import Rater
from extender.state.accounting import make_account, open_accounts
from extender.state.debug_json import NodesState, nodes_state
from extender.state.device_states import count_changes, count_states, device_rows
from extender.state.domains import NodeDomains
from extender.state.effect_rules import add_effects
from extender.state.effects import NodeProblem
from extender.state.machine_types import NodeClasses
from extender.state.moment import StateMoment, overlay_of
from extender.state.node_reader import NodeReader
from extender.state.node_record import fingerprint, mask_of
from extender.state.pod_record import PodStage
from extender.state.pods import PodTracker
from extender.state.resource_snapshots import NodeViews, ResourceSnapshots
from topology.errors import quote
from topology.groups import DEFAULT_FAMILIES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from extender.protocol import PodRequest
    from extender.snapshot import ClusterSnapshot, NodeView, Overlay
    from extender.state.accounting import Account
    from extender.state.device_states import DeviceRow, DeviceState
    from extender.state.effects import Effect
    from extender.state.node_record import NodeRecord, NodeResource
    from extender.state.pod_record import BoundPod
    from kube.objects import NodeFacts
    from topology.annotations import Plan
    from topology.groups import LevelFamily
    from topology.value import Demand

__all__ = ["LiveCluster"]


class LiveCluster:
    """Nodes and pods as the API server reports them. One writer, on the event loop.

    `pods` takes the inputs of pods and bindings; `reader` says which machine types are to be built
    (one may take a second: `extender.watch` does so off the event loop).
    """

    def __init__(
        self,
        resources: Sequence[str],
        *,
        demand: Demand,
        gpu_worth: Sequence[tuple[str, float]] = (),
        families: Sequence[LevelFamily] = DEFAULT_FAMILIES,
    ) -> None:
        self._classes = NodeClasses(demand)
        self.reader = NodeReader(resources, self._classes, gpu_worth, families)
        self._views = NodeViews(self._classes, Rater())
        self._nodes: dict[str, NodeRecord] = {}
        self.pods = PodTracker(resources, self._nodes)
        # Of each node, the accounts of its resources.
        self._accounts: dict[str, Sequence[Account]] = {}
        self._generation = 0
        self.domains = NodeDomains(families)
        # Nodes on which devices are claimed.
        self._claimed: dict[str, None] = {}
        self._snapshots = ResourceSnapshots()
        self._is_restructured = False
        self._freed: set[str] = set()

    # Inputs. Those of pods are the methods of `pods`.

    def update_node(self, facts: NodeFacts) -> None:
        """A node as it is now. Builds its machine type unless it was offered."""
        old = self._nodes.get(facts.name)
        if old is None or old.fingerprint != fingerprint(facts):
            self.put_node(self.reader.read(facts))

    def put_node(self, node: NodeRecord) -> None:
        """A node as it is now, read already."""
        old = self._nodes.get(node.name)
        reported = () if old is None else old.problems
        for problem in node.problems:
            if problem not in reported:
                self.pods.effects[NodeProblem(node.name, problem)] = None
        before = () if old is None else old.resources
        accounts = self._accounts.get(node.name, ())
        opened, n_changes = open_accounts(before, accounts, node.resources)
        self._accounts[node.name] = opened
        self._generation += n_changes
        if old is not None and old.report.generation != node.report.generation:
            self.pods.node_reported(node.name)
        self._is_restructured |= old is None or old.index_key != node.index_key
        self._nodes[node.name] = node
        self.domains.put(node.name, node.path, is_closed=node.is_unschedulable)
        self.pods.dirty_nodes[node.name] = None

    def delete_node(self, name: str) -> None:
        """A node is gone. Its pods stay known: it may come back."""
        if self._nodes.pop(name, None) is not None:
            self._generation += len(self._accounts.pop(name))
            self._claimed.pop(name, None)
            del self.pods.n_ended[name]
            self.domains.lose(name)
            self._is_restructured = True

    def replace_nodes(self, nodes: Iterable[NodeFacts]) -> None:
        """A complete list: what is not in it is gone."""
        listed = {facts.name: facts for facts in nodes}
        for name in [name for name in self._nodes if name not in listed]:
            self.delete_node(name)
        for facts in listed.values():
            self.update_node(facts)

    def set_freshness(self, *, is_synced: bool, observed_at_s: float | None) -> None:
        """Whether the watches are complete, and up to when (None: they cannot lag)."""
        if is_synced and not self._snapshots.first.is_synced:
            unknown = (name for name in self.pods.nodes() if name not in self._nodes)
            self.pods.dirty_nodes |= dict.fromkeys(unknown)
        self._snapshots.set_freshness(is_synced=is_synced, observed_at_s=observed_at_s)

    def expire(self, now_s: float, *, in_flight: Collection[str] = ()) -> None:
        """Drop the assumptions whose deadline is not after `now_s`, unless the pod is bound.

        Only those whose deadline the watches have passed, and not those of pods with a binding in
        flight (`in_flight`). A pod whose binding was accepted but that no watch has shown is probed
        instead.
        """
        shown = self._snapshots.first
        if shown.is_synced:
            observed_at_s = math.inf if shown.observed_at_s is None else shown.observed_at_s
            self.pods.expire(now_s, observed_at_s, in_flight)

    # Reading.

    @property
    def snapshot(self) -> ClusterSnapshot:
        """The cluster now, each node by its first resource; the same object until it changes."""
        return self.snapshot_of("")

    def snapshot_of(self, resource: str) -> ClusterSnapshot:
        """The same, nodes that serve this resource shown by it; by their first one if empty."""
        self.reconcile()
        return self._snapshots.further.get(resource, self._snapshots.first)

    @property
    def n_pods(self) -> int:
        """Number of pods known to have a node, as far as they may have devices."""
        return self.pods.n_bound

    def snapshot_for(self, request: PodRequest, siblings: Collection[str] = ()) -> ClusterSnapshot:
        """The cluster as this pod may use it; the same object until something changes for it.

        A node that serves several resources is shown by the one that the pod requests. Counted as
        free beside what is free: what the pod itself has claimed or assumed, and what `siblings`
        and pods of lower priority have claimed (not what they have assumed).
        """
        snapshot = self.snapshot_of(request.resource)
        own = self.pods.node_of(request.uid)
        if own is None and not self._claimed:
            return snapshot
        names = dict(self._claimed)
        if own is not None and own in self._accounts:
            names[own] = None
        masks = {name: self._free_for(request, name, siblings) for name in names}
        changed = {
            name: mask
            for name, mask in masks.items()
            if mask is not None and mask != snapshot.nodes[name].free
        }
        return snapshot.with_free(changed, snapshot.generation) if changed else snapshot

    def overlay(self, view: NodeView) -> Overlay:
        """The node of a view, with what each pod there would free by uid."""
        self.reconcile()
        return overlay_of(view, self._nodes, self._accounts)

    def bound(self, uid: str) -> BoundPod | None:
        """The pod with its node, if the API server accepted or showed it and the node is known."""
        return self.pods.bound(uid)

    def aligns(self, name: str) -> bool:
        """Whether the node's kubelet confines what is planned there; reconciles nothing."""
        node = self._nodes.get(name)
        if node is None or node.manager is None:
            return False
        return any(one.machine is not None for one in node.resources)

    def counts(self) -> Mapping[DeviceState, int]:
        """Number of devices in each state. O(pods)."""
        self.reconcile()
        return count_states(one for accounts in self._accounts.values() for one in accounts)

    @property
    def n_owners(self) -> int:
        """Number of pods that have devices or a claim; one on a node once. O(pods)."""
        self.reconcile()
        return sum(
            len({uid for account in accounts for uid in account.assignments})
            for accounts in self._accounts.values()
        )

    def devices(self, name: str, resource: str | None = None) -> tuple[DeviceRow, ...]:
        """Id, state and owner of each device of a node, in device order; () if it is unknown.

        Of all its resources, one after the other, or of one. Devices without a name of their own
        may have the same id in several resources.
        """
        self.reconcile()
        node = self._nodes.get(name)
        if node is None:
            return ()
        return tuple(
            row
            for served, account in zip(node.resources, self._accounts[name], strict=True)
            if resource is None or served.name == resource
            for row in device_rows(served.ids, account)
        )

    @property
    def records(self) -> Mapping[str, NodeRecord]:
        """The nodes as they were last seen, by name."""
        return self._nodes

    def moment(self) -> StateMoment:
        """Everything now, as one value that never changes. O(nodes) references."""
        self.reconcile()
        copies = self._nodes.copy(), self._accounts.copy()
        return StateMoment(*copies, self._snapshots.by_resource(), tuple(self._claimed))

    def as_json(self) -> NodesState:
        """Everything, for people."""
        return nodes_state(
            self.moment(), self.pods.name_of, is_synced=self._snapshots.first.is_synced
        )

    # Bind.

    def assume(self, request: PodRequest, plan: Plan, *, deadline_s: float) -> str | None:
        """Keep the plan's devices for a binding in flight, or return why not and change nothing.

        The pod's earlier assumption is replaced, and claims that `snapshot_for` counted as free are
        dropped for it. Without `confirm` the assumption ends at `deadline_s`.
        """
        return self.assume_all(((request, plan),), deadline_s=deadline_s)

    def assume_all(
        self, placements: Sequence[tuple[PodRequest, Plan]], *, deadline_s: float
    ) -> str | None:
        """The same for several pods, all of them or none; the plans have no device in common."""
        siblings = {request.uid for request, _ in placements}
        for request, plan in placements:
            if why_not := self._why_not(request, plan, siblings):
                return f"assume for pod {request.uid}: {why_not}"
        for request, plan in placements:
            self.pods.assume(request, plan, resource=request.resource, deadline_s=deadline_s)
        return None

    # Outputs.

    def take_effects(self) -> tuple[Effect, ...]:
        """What is to be read or reported since the last call, in order, each once."""
        self.reconcile()
        effects, self.pods.effects = tuple(self.pods.effects), {}
        return effects

    def take_freed_nodes(self) -> frozenset[str]:
        """Nodes on which some pod can have more than before, since the last call.

        Also what a nomination waited for and now has: it is free for that pod.
        """
        self.reconcile()
        freed, self._freed = frozenset(self._freed & self._nodes.keys()), set()
        return freed

    # Reconciling.

    def reconcile(self) -> None:
        """Bring accounts and snapshot in line with the facts."""
        if not (self.pods.dirty_nodes or self._is_restructured):
            return
        dirty_nodes, self.pods.dirty_nodes = self.pods.dirty_nodes, {}
        views: dict[str, Sequence[NodeView]] = {}
        for name in dirty_nodes:
            node = self._nodes.get(name)
            if node is not None:
                views[name] = self._reconcile_node(node)
            elif self._snapshots.first.is_synced:
                self.pods.probe_plans_for(name)
        self._publish(views)
        if self._classes.is_crowded:
            nodes, shown = self._nodes.values(), self._snapshots.all_shown
            machines = (one.machine for node in nodes for one in node.resources)
            classes = (view.node_class for node in nodes for view in shown(node))
            self._classes.keep((one for one in machines if one is not None), classes)

    def _reconcile_node(self, node: NodeRecord) -> Sequence[NodeView]:
        """Make the accounts and the views of a node's resources, and what follows for its pods."""
        name = node.name
        accounts: list[Account] = []
        views: list[NodeView] = []
        has_claims = False
        for served, before in zip(node.resources, self._accounts[name], strict=True):
            shown = self._snapshots.shown(name, served.name)
            account = make_account(
                node,
                served,
                self.pods.on_node(name),
                self.pods.nominated_to(name),
                partial(self._views.choose, node, served, shown),
            )
            accounts.append(account)
            views.append(self._reconcile_resource(node, served, before, account))
            has_claims = has_claims or bool(account.claims)
        self._accounts[name] = accounts
        if has_claims:
            self._claimed[name] = None
        else:
            self._claimed.pop(name, None)
        add_effects(self.pods, node, accounts)
        return views

    def _reconcile_resource(
        self, node: NodeRecord, served: NodeResource, before: Account, account: Account
    ) -> NodeView:
        self._generation += count_changes(before, account)
        old = self._snapshots.shown(node.name, served.name)
        view = self._views.view(node, served, account, old)
        if old is None or old.node_class is not view.node_class or old.ids != view.ids:
            is_freed = bool(view.free or account.claims)
        else:
            # With less free the kubelet may turn to other NUMA nodes, where a pod is better off.
            is_freed = account.has_gained(before, old.free) or (
                view.node_class.manager is not None and view.state != old.state
            )
        if is_freed:
            self._freed.add(node.name)
        return view

    def _publish(self, views: Mapping[str, Sequence[NodeView]]) -> None:
        snapshots = self._snapshots
        changes: Mapping[str, Sequence[NodeView]] = {}
        if not self._is_restructured:
            changes = snapshots.changes(views)
        is_changed = self._is_restructured or any(changes.values())
        if is_changed and self._generation == snapshots.first.generation:
            # A class or a zone changed, and no device.
            self._generation += 1
        if self._is_restructured:
            self._is_restructured = False
            snapshots.rebuild(self._nodes, views, self._generation)
        elif self._generation != snapshots.first.generation:
            snapshots.publish(changes, self._generation)

    def _free_for(self, request: PodRequest, name: str, siblings: Collection[str]) -> int | None:
        """The mask of what a pod may have on a node; None where that serves no such resource."""
        index = self._nodes[name].index(request.resource)
        if index is None:
            return None
        pod = self.pods.get(request.uid)
        is_assumed = pod is not None and pod.stage is PodStage.ASSUMED
        account = self._accounts[name][index]
        return account.free_for(request, is_assumed=is_assumed, siblings=siblings)

    def _why_not(self, request: PodRequest, plan: Plan, siblings: Collection[str]) -> str | None:
        """Why the plan's devices cannot be assumed, None where they can."""
        self.reconcile()
        pod, node = self.pods.get(request.uid), self._nodes.get(plan.node)
        if pod is not None and pod.stage is not PodStage.ASSUMED:
            return f"its binding is {pod.stage.value} already"
        if node is None:
            return f"node {plan.node} is not known"
        index, free = node.index(request.resource), self._free_for(request, node.name, siblings)
        if index is None or free is None:
            return f"node {node.name} does not serve {quote(request.resource)}"
        for one in plan.ids:
            if not mask_of((one,), node.resources[index].positions) & free:
                rows = self.devices(node.name, request.resource)
                states = {id_: state.value for id_, state, _ in rows}
                return f"device {one} of node {node.name} is {states.get(one, 'unknown')}"
        return None
