"""The live state against a model that it sees through watches: late, twice, or out of order."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from extender.placement import Rater
from extender.state import DeviceState, LiveCluster, Probe
from extender.state.pods import PodTracker
from tests.examples import up_to
from tests.unit.extender.feeds import (
    MIG,
    bare,
    choose,
    content,
    facts,
    hold,
    ids,
    live,
    node,
    plan_of,
    report,
    whole,
    wish,
)
from tests.unit.extender.pods import GPU
from topology.annotations import Plan

if TYPE_CHECKING:
    from extender.protocol import PodRequest
    from extender.snapshot import NodeView
    from kube.objects import NodeFacts, PodObject

NODES: tuple[str, ...] = ("steady", "n1", "n2")
"""On `steady` only health changes, and only Coterie binds: there no plan may ever overlap."""
MIXED, N_PARTITIONS = "n1", 3
"""This node serves partitions beside its GPUs, as long as it serves anything."""
RESOURCES = (GPU, MIG)
SHAPES = ("plain", "new ids", "bare", "fewer", "nothing", "gone")
SOURCES = ("nodes", "pods", "nominated")
OUTCOMES = ("accepted", "unknown", "refused", "lost")
LATER_S = 10.0


@dataclass
class Pod:
    """A pod with a node, as the API server has it. `devices` are those that the kubelet named."""

    uid: str
    node: str
    size: int
    plan: Plan | None
    devices: tuple[str, ...] = ()
    resource: str = GPU


class World:
    """What is true, and what the watches have not delivered yet."""

    def __init__(self) -> None:
        self.shapes = dict.fromkeys(NODES, "gone")
        self.unhealthy: dict[str, tuple[str, ...]] = {}
        self.pods: dict[str, Pod] = {}
        self.nominated: dict[str, tuple[PodRequest, str]] = {}
        self.undelivered: dict[str, list[tuple[str, Any]]] = {source: [] for source in SOURCES}
        self.lists: dict[str, list[Any]] = {}

    def ids(self, name: str) -> tuple[str, ...]:
        """The devices of a node that have names."""
        shape = self.shapes[name]
        if shape in {"plain", "new ids"}:
            return ids(name, prefix="new-" if shape == "new ids" else "")
        return ()

    def count(self, name: str) -> int:
        """How many devices a node gives away."""
        return {"gone": 0, "nothing": 0, "fewer": 2}.get(self.shapes[name], 4)

    def n_partitions(self, name: str) -> int:
        """How many partitions it gives away."""
        return N_PARTITIONS if name == MIXED and self.shapes[name] != "gone" else 0

    def node(self, name: str) -> NodeFacts:
        """The node as the API server shows it."""
        shown, partitions = self.shown(name), self.n_partitions(name)
        if not partitions:
            return shown
        more = {MIG: partitions}
        return replace(
            shown,
            allocatable={**shown.allocatable, **more},
            capacity={**(shown.capacity or shown.allocatable), **more},
        )

    def shown(self, name: str) -> NodeFacts:
        """The same without its partitions."""
        held = tuple(
            hold(pod.uid, *pod.devices)
            for pod in self.pods.values()
            if pod.node == name and pod.plan is not None and pod.devices
        )
        devices = report(*self.unhealthy.get(name, ()), holds=held)
        match self.shapes[name]:
            case "bare":
                return bare(name, devices=devices)
            case "fewer":
                return bare(name, 2, devices=devices)
            case "nothing":
                return node(name, allocatable={}, devices=devices)
            case shape:
                return node(name, prefix="new-" if shape == "new ids" else "", devices=devices)

    def list(self, source: str) -> list[Any]:
        """Everything there is."""
        if source == "nodes":
            return [self.node(name) for name in NODES if self.shapes[name] != "gone"]
        if source == "pods":
            return [facts(pod.uid, pod.plan) for pod in self.pods.values()]
        return list(self.nominated.values())

    def read(self, uid: str) -> PodObject | None:
        """A pod in full."""
        pod = self.pods.get(uid)
        if pod is None:
            return None
        body = content(uid, pod.size, resource=pod.resource)
        return whole(uid, pod.node, pod.size, *pod.devices, body=body)

    def tell_node(self, name: str) -> None:
        """The node changed."""
        is_gone = self.shapes[name] == "gone"
        self.undelivered["nodes"].append(("gone", name) if is_gone else ("seen", self.node(name)))

    def tell_pod(self, uid: str) -> None:
        """The pod is new, changed or gone."""
        pod = self.pods.get(uid)
        self.undelivered["pods"].append(
            ("gone", uid) if pod is None else ("seen", facts(uid, pod.plan))
        )


CALLS = {
    ("nodes", "seen"): LiveCluster.update_node,
    ("nodes", "gone"): LiveCluster.delete_node,
    ("nodes", "list"): LiveCluster.replace_nodes,
    ("pods", "seen"): PodTracker.update,
    ("pods", "gone"): PodTracker.delete,
    ("pods", "list"): PodTracker.replace,
    ("nominated", "seen"): lambda pods, pair: pods.nominations.add(*pair),
    ("nominated", "gone"): lambda pods, uid: pods.nominations.end(uid),
    ("nominated", "list"): lambda pods, pairs: pods.nominations.replace(pairs),
}


def apply(cluster: LiveCluster, function: Any, *args: Any, **named: Any) -> Any:
    """Call a method of the cluster, or of its pods."""
    is_of_cluster = function in vars(LiveCluster).values()
    return function(cluster if is_of_cluster else cluster.pods, *args, **named)


class LiveStateModel(RuleBasedStateMachine):
    """Random lives of a small cluster."""

    @initialize()
    def start(self) -> None:
        """All nodes are there and known."""
        self.world = World()
        self.cluster = live(resources=RESOURCES)
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []
        self.rater = Rater()
        self.now_s = 0.0
        self.n_made = 0
        self.pending: dict[str, tuple[PodRequest, Plan]] = {}
        self.answers: list[tuple[str, PodObject | None]] = []
        self.views: dict[tuple[str, str], NodeView] = {}
        for name in NODES:
            self.world.shapes[name] = "plain"
            self.call(LiveCluster.update_node, self.world.node(name))

    def call(self, function: Any, *args: Any, **named: Any) -> Any:
        """Call the cluster, and remember it for the replays."""
        self.calls.append((function, args, named))
        return apply(self.cluster, function, *args, **named)

    def new_uid(self) -> str:
        """A uid that was never used: an ended pod's uid never comes again."""
        self.n_made += 1
        return f"p{self.n_made}"

    # What changes at the API server.

    @rule(
        name=st.sampled_from(NODES),
        shape=st.sampled_from(SHAPES),
        bad=st.sets(st.integers(0, 3), max_size=2),
    )
    def change_node(self, name: str, shape: str, bad: set[int]) -> None:
        """A node goes, comes back, loses its topology or gets another one; devices fail."""
        if name != "steady":
            self.world.shapes[name] = shape
        self.world.unhealthy[name] = ids(name, *sorted(bad)) if bad else ()
        self.world.tell_node(name)

    @rule(
        name=st.sampled_from(NODES[1:]),
        which=st.integers(0, 3) | st.sets(st.integers(0, 3), min_size=1, max_size=3),
        resource=st.sampled_from(RESOURCES),
    )
    def bind_elsewhere(self, name: str, which: set[int] | int, resource: str) -> None:
        """Another scheduler binds by number, or another replica by a plan that we know not of."""
        uid = self.new_uid()
        if isinstance(which, int):
            self.world.pods[uid] = Pod(uid, name, which, None, resource=resource)
        else:
            plan = plan_of(name, *ids(name, *sorted(which)))
            self.world.pods[uid] = Pod(uid, name, len(which), plan)
        self.world.tell_pod(uid)

    @precondition(lambda self: self.world.pods)
    @rule(data=st.data(), has_ended=st.booleans(), is_forced=st.booleans())
    def change_pod(self, data: st.DataObject, *, has_ended: bool, is_forced: bool) -> None:
        """A pod ends, or the kubelet names what it gave: not as planned, where there was a plan."""
        pod = data.draw(st.sampled_from(list(self.world.pods.values())))
        named = {one for other in self.world.pods.values() for one in other.devices}
        left = [one for one in self.world.ids(pod.node) if one not in named]
        if has_ended:
            if is_forced:
                removed = facts(pod.uid, pod.plan, deletion_grace_s=0)
                self.world.undelivered["pods"].append(("seen", removed))
            del self.world.pods[pod.uid]
        elif pod.resource != GPU:
            pass  # partitions have no names here
        elif pod.node != "steady" and not pod.devices and 0 < pod.size <= len(left):
            pod.devices = tuple(data.draw(st.permutations(left))[: pod.size])
        self.world.tell_pod(pod.uid)
        if pod.plan is not None and pod.devices:
            self.world.tell_node(pod.node)

    @rule(
        name=st.sampled_from(NODES),
        size=st.integers(1, 3),
        priority=st.integers(0, 2),
        resource=st.sampled_from(RESOURCES),
        is_last_over=st.booleans(),
    )
    def nominate(
        self, name: str, size: int, priority: int, resource: str, *, is_last_over: bool
    ) -> None:
        """A pending pod is nominated, and perhaps the one before is so no more."""
        if is_last_over and self.world.nominated:
            self.withdraw(next(reversed(self.world.nominated)))
        request = wish(self.new_uid(), size, priority=priority, resource=resource)
        self.world.nominated[request.uid] = request, name
        self.world.undelivered["nominated"].append(("seen", (request, name)))

    def withdraw(self, uid: str) -> None:
        """The pod leaves the nominated ones."""
        if self.world.nominated.pop(uid, None) is not None:
            self.world.undelivered["nominated"].append(("gone", uid))

    # Bind.

    @rule(
        data=st.data(),
        name=st.sampled_from(("steady", *NODES)),
        size=st.integers(1, 3),
        resource=st.sampled_from(RESOURCES),
        outcome=st.sampled_from(("under way", *OUTCOMES)),
    )
    def bind(self, data: st.DataObject, name: str, size: int, resource: str, outcome: str) -> None:
        """The scheduler binds a pod, perhaps one that was nominated or is tried again."""
        known = [request for request, _ in self.world.nominated.values()]
        known += [request for request, _ in self.pending.values()]
        request = data.draw(st.sampled_from([None, *known])) or wish(
            self.new_uid(), size, resource=resource
        )
        self.call(LiveCluster.snapshot_for, request)
        if name not in self.cluster.snapshot.nodes or request.uid in self.world.pods:
            return
        plan = choose(self.cluster, request, name, self.rater)
        if not isinstance(plan, Plan):
            return
        deadline_s = self.now_s + LATER_S
        refused = self.call(LiveCluster.assume, request, plan, deadline_s=deadline_s)
        assert refused is None, "what the snapshot offers can be had"
        self.pending[request.uid] = request, plan
        self.end_bind_of(request.uid, outcome)

    @precondition(lambda self: self.pending)
    @rule(data=st.data(), outcome=st.sampled_from(OUTCOMES))
    def end_bind(self, data: st.DataObject, outcome: str) -> None:
        """A binding that was under way comes to its end."""
        self.end_bind_of(data.draw(st.sampled_from(list(self.pending))), outcome)

    def end_bind_of(self, uid: str, outcome: str) -> None:
        """The API server accepted it or not, and the answer may or may not have arrived."""
        if outcome == "under way":
            return
        request, plan = self.pending.pop(uid)
        if outcome in {"accepted", "unknown"}:
            written = plan if plan.containers else None
            pod = Pod(uid, plan.node, request.size_gpus, written, resource=request.resource)
            self.world.pods[uid] = pod
            self.world.tell_pod(uid)
            self.withdraw(uid)
        if outcome == "accepted":
            self.call(PodTracker.confirm, uid)
        elif outcome == "refused":
            self.call(PodTracker.forget, uid)

    @rule(seconds=st.sampled_from((1.0, LATER_S)))
    def pass_time(self, seconds: float) -> None:
        """Calls under way are given up long before their assumptions end."""
        self.pending.clear()
        self.now_s += seconds
        is_caught_up = not (self.world.undelivered["pods"] or "pods" in self.world.lists)
        if is_caught_up:
            self.call(LiveCluster.set_freshness, is_synced=True, observed_at_s=self.now_s)
        self.call(LiveCluster.expire, self.now_s)

    # The cluster gets events.

    @rule(source=st.sampled_from(("pods", *SOURCES)), count=st.integers(1, 4))
    def deliver(self, source: str, count: int) -> None:
        """The next events of a source arrive, the last one twice."""
        if source not in self.world.lists:
            for kind, value in self.world.undelivered[source][:count]:
                self.call(CALLS[source, kind], value)
            for kind, value in self.world.undelivered[source][:count][-1:]:
                self.call(CALLS[source, kind], value)
            del self.world.undelivered[source][:count]

    @rule(source=st.sampled_from(("pods", *SOURCES)))
    def relist(self, source: str) -> None:
        """A watch broke and a list is made, from which events go on; or that list arrives."""
        if source in self.world.lists:
            self.call(CALLS[source, "list"], self.world.lists.pop(source))
        else:
            self.world.lists[source] = self.world.list(source)
            self.world.undelivered[source].clear()

    @rule(is_asking=st.booleans())
    def probe(self, *, is_asking: bool) -> None:
        """Probes are sent, and what they find is fixed then; or the oldest one comes back."""
        if is_asking:
            for effect in self.call(LiveCluster.take_effects):
                if isinstance(effect, Probe):
                    self.answers.append((effect.uid, self.world.read(effect.uid)))
        elif self.answers:
            uid, pod = self.answers.pop(0)
            if pod is None:
                self.call(PodTracker.delete, uid)
            else:
                self.call(PodTracker.read, pod)

    @rule()
    def catch_up(self) -> None:
        """Everything arrives, and nothing is under way: as good as a restart."""
        for uid in list(self.pending):
            self.pending.pop(uid)
            self.call(PodTracker.forget, uid)
        for source in SOURCES:
            if source in self.world.lists:
                self.relist(source)
            self.deliver(source, len(self.world.undelivered[source]))
        self.now_s += 2 * LATER_S
        self.call(LiveCluster.set_freshness, is_synced=True, observed_at_s=self.now_s)
        self.call(LiveCluster.expire, self.now_s)
        self.now_s += 2 * LATER_S
        self.call(LiveCluster.expire, self.now_s)
        self.probe(is_asking=True)
        while self.answers:
            self.probe(is_asking=False)
            self.probe(is_asking=True)
        self.check_against_the_world()
        self.check_against_a_restart()

    # What must hold.

    def check_against_the_world(self) -> None:
        """Everything is known: what is free follows from the world, counted naively."""
        for name in NODES:
            if self.world.shapes[name] == "gone":
                assert name not in self.cluster.snapshot.nodes
                continue
            self.check_partitions(name)
            named = set(self.world.ids(name))
            used: set[str] = set()
            missing = 0
            for pod in self.world.pods.values():
                if pod.node == name and pod.resource == GPU:
                    has = set(pod.devices or (pod.plan.ids if pod.plan else ()))
                    used |= has & named
                    # What a plan or a report names and the node no longer has is removed.
                    n_lost = len(has - named) if named and pod.plan is not None else 0
                    missing += pod.size - n_lost - len(has & named)
            states = self.cluster.devices(name, GPU)
            offered = {one for one, state, _ in states if state.value in {"free", "claimed"}}
            if named:
                left = named - used - set(self.world.unhealthy.get(name, ()))
                assert offered <= left
                assert len(offered) == max(0, len(left) - missing)
            else:
                assert len(offered) == max(0, self.world.count(name) - missing)
            is_planned_on = self.cluster.snapshot.nodes[name].node_class.machine is not None
            assert is_planned_on == bool(named and not missing)

    def check_partitions(self, name: str) -> None:
        """Those that no pod has are free, whatever became of the GPUs."""
        sizes = (
            pod.size for pod in self.world.pods.values() if (pod.node, pod.resource) == (name, MIG)
        )
        states = [state.value for _, state, _ in self.cluster.devices(name, MIG)]
        assert len(states) == self.world.n_partitions(name)
        n_offered = sum(state in {"free", "claimed"} for state in states)
        assert n_offered == max(0, len(states) - sum(sizes))

    def check_against_a_restart(self) -> None:
        """The lists alone give the same."""
        fresh = live(resources=RESOURCES)
        fresh.pods.replace(self.world.list("pods"))
        fresh.pods.nominations.replace(self.world.list("nominated"))
        fresh.replace_nodes(self.world.list("nodes"))
        while probes := [one for one in fresh.take_effects() if isinstance(one, Probe)]:
            for one in probes:
                pod = self.world.read(one.uid)
                assert pod is not None
                fresh.pods.read(pod)
        assert masks(fresh) == masks(self.cluster)

    @invariant()
    def no_plan_of_a_live_pod_is_given_away(self) -> None:
        """Whatever the watch showed: Coterie bound it, so Coterie knows."""
        taken: set[str] = set()
        snapshot = self.cluster.snapshot
        for pod in self.world.pods.values():
            if pod.node == "steady" and pod.plan is not None:
                assert not taken & set(pod.plan.ids), "two live plans"
                taken |= set(pod.plan.ids)
        if "steady" in snapshot.nodes:
            view = snapshot.nodes["steady"]
            assert not taken & {one for i, one in enumerate(view.ids) if view.free >> i & 1}

    @invariant()
    def snapshot_and_device_states_agree(self) -> None:
        """They are two views of one account; reading either changes nothing."""
        self.calls.append((LiveCluster.reconcile, (), {}))
        snapshot, counts = self.cluster.snapshot, self.cluster.counts()
        for resource in RESOURCES:
            of_resource = self.cluster.snapshot_of(resource)
            assert of_resource.generation == snapshot.generation
            for name, view in of_resource.nodes.items():
                rows = self.cluster.devices(name, view.node_class.resource)
                assert view.ids == tuple(one for one, _, _ in rows)
                is_free = [state is DeviceState.FREE for _, state, _ in rows]
                assert view.free == sum(1 << i for i, free in enumerate(is_free) if free)
        found = [row for name in snapshot.nodes for row in self.cluster.devices(name)]
        states = [(state, owner) for _, state, owner in found]
        ownerless = {DeviceState.FREE, DeviceState.UNHEALTHY}
        assert all((owner is None) == (state in ownerless) for state, owner in states)
        assert Counter(counts) == Counter(state for state, _ in states) + Counter()
        assert self.cluster.n_owners == len({owner for _, owner in states} - {None})
        assert self.cluster.snapshot is snapshot

    @invariant()
    def what_becomes_free_is_reported(self) -> None:
        """Else no pod that was refused would be requeued."""
        views = {
            (name, resource): view
            for resource in RESOURCES
            for name, view in self.cluster.snapshot_of(resource).nodes.items()
            if view.node_class.resource == resource
        }
        freed = self.cluster.take_freed_nodes()
        for (name, resource), view in views.items():
            old = self.views.get((name, resource))
            is_as_before = (
                old is not None and old.node_class is view.node_class and old.ids == view.ids
            )
            before = old.free if old is not None and is_as_before else 0
            assert name in freed or not view.free & ~before
        self.views = views

    def teardown(self) -> None:
        """The same calls give the same, and reading in between changes no device."""
        self.catch_up()
        again, unread = live(resources=RESOURCES), live(resources=RESOURCES)
        for function, args, named in self.calls:
            apply(again, function, *args, **named)
            if function in CHANGES:
                apply(unread, function, *args, **named)
        assert again.as_json() == self.cluster.as_json()
        assert masks(unread) == masks(self.cluster)


CHANGES = frozenset(CALLS.values()) | {
    LiveCluster.assume,
    PodTracker.confirm,
    PodTracker.forget,
    PodTracker.read,
    LiveCluster.set_freshness,
    LiveCluster.expire,
}


def masks(cluster: LiveCluster) -> dict[tuple[str, str], tuple[int, bool]]:
    """What is free on each node of each resource, and whether it may be planned on."""
    return {
        (name, resource): (view.free, view.node_class.machine is None)
        for resource in RESOURCES
        for name, view in sorted(cluster.snapshot_of(resource).nodes.items())
    }


TestLiveState = LiveStateModel.TestCase
TestLiveState.settings = settings(max_examples=up_to(150), stateful_step_count=50)
