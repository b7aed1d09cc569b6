"""Groups against a model of scheduler and API server: whatever comes when, all members or none."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from extender.bind import BindCall, HoldBind, ReadPod, WriteBinding, WriteResult, Written
from extender.engine.events import (
    BindAbandoned,
    BindHeld,
    BindingWritten,
    BindPodRead,
    BindRequested,
    FreshnessSet,
    NodeDeleted,
    NodeUpdated,
    TimePassed,
    VerbCalled,
)
from extender.protocol import Answer, Outcome, Reason, Verb
from extender.state import DeviceState, Probe
from tests.examples import up_to
from tests.unit.extender.feeds import ids, report
from tests.unit.extender.group_scene import GroupScene, leaf
from tests.unit.extender.late_server import LateServer
from tests.unit.extender.pods import args, binding
from topology.annotations import decode_plan
from topology.model import names

if TYPE_CHECKING:
    from tests.unit.extender.api_server import FakePod

NODES = ("n0", "n1", "n2", "n3")
GROUPS = {"pair": (2, 4), "trio": (3, 2), "four": (4, 1)}
"""Size, and the GPUs of each member."""
ENDS = ("well", "well", "refused", "lost", "late", "late")
SPARE = 1
"""Members beyond the size."""


@dataclass
class Call:
    """A bind call that is not answered."""

    uid: str
    step: Any
    until_s: float


class GroupsMachine(RuleBasedStateMachine):
    """One engine, one scheduler, one API server."""

    @initialize()
    def start(self) -> None:
        self.scene = GroupScene(*(leaf(name, f"S{int(name[1]) // 2}") for name in NODES))
        self.server = LateServer()
        self.named: dict[str, str] = {}
        self.calls: dict[str, Call] = {}
        self.released: set[str] = set()
        self.unknown: set[str] = set()
        self.late: list[WriteBinding] = []
        self.sick: set[str] = set()
        self.group_of: dict[str, str] = {}
        self.begun: dict[str, set[str]] = {group: set() for group in GROUPS}
        self.n_pods = 0

    # The API server and its watches.

    @rule(group=st.sampled_from(sorted(GROUPS)), slot=st.integers(0, 3 + SPARE))
    def create(self, group: str, slot: int) -> None:
        """A controller makes a member; names are used again."""
        size, n_gpus = GROUPS[group]
        name = f"{group}-{slot % (size + SPARE)}"
        if f"default/{name}" not in self.server.api.pods:
            self.n_pods += 1
            uid = f"u{self.n_pods}"
            wishes = {"group": group, "group_size": str(size)}
            pod = self.server.api.create(n_gpus, uid=uid, name=name, **wishes)
            self.server.show(pod)

    @rule(group=st.sampled_from(sorted(GROUPS)))
    def create_group(self, group: str) -> None:
        """All that lack."""
        for slot in range(GROUPS[group][0]):
            self.create(group, slot)

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        pod = self._any(data)
        if pod is not None:
            self.server.delete(pod)

    @rule(n=st.integers(1, 4), is_pending=st.booleans())
    def deliver(self, n: int, is_pending: bool) -> None:
        """One watch delivers some events; the other may be behind."""
        events = self.server.pending if is_pending else self.server.assigned
        for _ in range(min(n, len(events))):
            self._handle(events.pop(0)(self.scene.now_s))

    @rule()
    def relist(self) -> None:
        """Watches begin again from complete lists."""
        for event in self.server.lists(self.scene.now_s):
            self._handle(event)

    @rule(name=st.sampled_from(NODES), device=st.integers(0, 3))
    def sicken(self, name: str, device: int) -> None:
        """A device fails, or all are well again."""
        self.sick = {f"{name}-{device}"} if not self.sick else set()
        for one in NODES:
            bad = self.sick & set(ids(one))
            self._handle(NodeUpdated(leaf(one, f"S{int(one[1]) // 2}", devices=report(*bad))))

    @rule(name=st.sampled_from(NODES))
    def delete_node(self, name: str) -> None:
        self._handle(NodeDeleted(name))
        self._handle(NodeUpdated(leaf(name, f"S{int(name[1]) // 2}")))

    @rule(seconds=st.sampled_from((0.3, 1.0, 6.0, 40.0, 70.0)))
    def wait(self, seconds: float) -> None:
        """Time passes; after some seconds the watches have shown all, and no write is late."""
        if seconds > 1.0:
            self.late.clear()
            self.deliver(len(self.server.pending), is_pending=True)
            self.deliver(len(self.server.assigned), is_pending=False)
        self.scene.now_s += seconds
        self._handle(FreshnessSet(is_synced=True, observed_at_s=self.scene.now_s))
        self._handle(TimePassed(self.scene.now_s))

    # kube-scheduler.

    @rule(data=st.data(), left_out=st.sets(st.sampled_from(NODES), max_size=2))
    def filter(self, data: st.DataObject, left_out: set[str]) -> None:
        pod = self._any(data, is_pending=True)
        if pod is not None and pod.uid not in self.calls:
            self._filter(pod, [name for name in NODES if name not in left_out])

    @rule()
    def filter_all(self) -> None:
        """The queue is drained, and what is due is planned."""
        for pod in self.server.api.pods.values():
            if pod.node is None and pod.uid not in self.calls:
                self._filter(pod, list(NODES))
        self.look()

    @rule()
    def look(self) -> None:
        self.scene.woken()

    @rule(data=st.data(), n=st.integers(1, 3))
    def bind(self, data: st.DataObject, n: int) -> None:
        """Bind calls for nodes that filter named."""
        for _ in range(n):
            uids = sorted(self.named.keys() - self.calls.keys())
            if uids:
                self._begin(data.draw(st.sampled_from(uids)))

    @rule()
    def bind_all(self) -> None:
        for uid in sorted(self.named.keys() - self.calls.keys()):
            self._begin(uid)

    @rule(group=st.sampled_from(sorted(GROUPS)))
    def hurry(self, group: str) -> None:
        """A whole group comes, and its Bindings are about to be written."""
        self.create_group(group)
        self.deliver(len(self.server.pending), is_pending=True)
        self.filter_all()
        self.filter_all()
        self.bind_all()
        for call in list(self.calls.values()):
            if isinstance(call.step, HoldBind) and self._can_go_on(call):
                self._go_on(call, "well")

    @rule(ends=st.lists(st.sampled_from(ENDS), min_size=1, max_size=6))
    def go_on(self, ends: list[str]) -> None:
        """Calls take their next steps; a Binding is accepted, refused, or its answer lost."""
        for uid, end in zip(sorted(self.calls), ends, strict=False):
            if self._can_go_on(self.calls[uid]):
                self._go_on(self.calls[uid], end)

    @rule()
    def come_late(self) -> None:
        """A write whose answer was lost reaches the API server now."""
        if self.late:
            self.server.write(self.late.pop(0))

    # What always holds.

    @invariant()
    def no_device_is_in_two_plans(self) -> None:
        pods = self.server.api.pods.values()
        held = [
            one
            for pod in pods
            if pod.node is not None
            for one in decode_plan(pod.plan[names.PLAN]).ids
        ]
        assert len(held) == len(set(held))

    @invariant()
    def claims_are_for_whole_groups(self) -> None:
        for group, (size, _) in GROUPS.items():
            waiting, bound, _ = self.scene.groups.readings.counts(("default", group))
            if any(self._claims(pod) for pod in self._members(group)):
                assert waiting + bound >= size or self.begun[group]

    @invariant()
    def nothing_is_kept_for_nobody(self) -> None:
        """Devices that are assumed are a claim's, or of a Binding that may be written."""
        groups, cluster = self.scene.groups, self.scene.gateway.cluster
        for name in cluster.snapshot.nodes:
            for _, state, uid in cluster.devices(name):
                if state is DeviceState.ASSUMED:
                    may_be = uid in self.calls or uid in self.unknown
                    assert may_be or groups.claim(str(uid)) is not None, uid

    # The end.

    def teardown(self) -> None:
        """All calls end, the watches catch up; then every group that fits is placed."""
        if not hasattr(self, "scene"):
            return
        self._settle()
        for _ in range(14):
            self._schedule()
        self._check_groups()
        for pod in list(self.server.api.pods.values()):
            self.server.delete(pod)
        self._settle()
        counts = self.scene.gateway.cluster.counts()
        assert {state.value for state, n in counts.items() if n} <= {"free"}
        assert self.scene.groups.n_groups == 0

    def _settle(self) -> None:
        self.late.clear()
        self.sick.clear()
        for name in NODES:
            self._handle(NodeUpdated(leaf(name, f"S{int(name[1]) // 2}", devices=report())))
        for _ in range(4):
            for call in list(self.calls.values()):
                call.until_s = 0.0
                self._go_on(call, "well")
        assert not self.calls
        self.relist()
        for _ in range(3):
            self.wait(70.0)
            for effect in self.scene.gateway.cluster.take_effects():
                if isinstance(effect, Probe):
                    self._handle(self.server.read(effect))
        self.named.clear()

    def _schedule(self) -> None:
        """A round of a scheduler whose own filters leave all nodes."""
        self.deliver(99, is_pending=True)
        self.deliver(99, is_pending=False)
        self.wait(6.0)
        self.look()
        for pod in list(self.server.api.pods.values()):
            if pod.node is None and pod.uid not in self.calls:
                self._filter(pod, list(NODES))
        for uid in sorted(self.named):
            self._begin(uid)
        for _ in range(3):
            for call in list(self.calls.values()):
                if self._can_go_on(call):
                    self._go_on(call, "well")
        for call in list(self.calls.values()):
            call.until_s = 0.0
            self._go_on(call, "well")

    def _check_groups(self) -> None:
        """A group that is complete has all its members bound, unless there is no place for them."""
        for group, (size, _) in GROUPS.items():
            members = self._members(group)
            if len(members) < size:
                continue
            n_bound = sum(one.node is not None for one in members)
            if n_bound < size:
                reason = self.scene.status(("default", group)).reason
                assert reason is Reason.GROUP_NO_ROOM, (group, reason)
                n_gpus = GROUPS[group][1] * (size - n_bound)
                free = sum(self.scene.free(name) for name in NODES)
                assert free < n_gpus + 4, (group, free, n_gpus)

    # Inside.

    def _handle(self, event: Any) -> Any:
        found = self.scene.gateway.handle(event)
        for group, (size, _) in GROUPS.items():
            status = self.scene.groups.readings.status(("default", group))
            begun = self.begun[group]
            if not status.bound and (not status.members or len(begun) >= size):
                begun.clear()
            begun.update(status.bound)
            self.unknown -= status.bound.keys()
        pods = self.scene.gateway.cluster.pods
        self.unknown = {uid for uid in self.unknown if pods.get(uid) is not None}
        for call in self.calls.values():
            if self.scene.groups.releases.is_released(call.uid) and call.uid not in self.released:
                self._check_release(call.uid)
        return found

    def _check_release(self, uid: str) -> None:
        """As many are bound, or have a bind call here, as the group has members at least.

        Or had one whose Binding may come true. Of a group of which some were bound, that have ended
        maybe, no more are needed than wait; those count whose Bindings may be written already.
        """
        self.released.add(uid)
        pods = {one.uid: one for one in self.server.api.pods.values()}
        group = self.group_of[uid] if uid not in pods else _group(pods[uid])
        size, _ = GROUPS[group]
        groups = self.scene.groups
        n_waiting, n_bound, _ = groups.readings.counts(("default", group))
        needed = size - n_bound
        may_be = self.unknown
        if self.begun[group]:
            needed, may_be = min(needed, n_waiting), set(self.group_of)
        released = {one for one in may_be if groups.releases.is_released(one)}
        n_here = sum(self.group_of[one] == group for one in self.calls.keys() | released)
        assert n_here >= needed, (group, n_bound, n_here, n_waiting)

    def _filter(self, pod: FakePod, offered: list[str]) -> None:
        self.group_of[pod.uid] = _group(pod)
        body = args(json.loads(pod.as_json()), offered)
        answer = self._handle(VerbCalled(Verb.FILTER, body, self.scene.now_s))
        named = json.loads(answer.body)["NodeNames"]
        self.named.pop(pod.uid, None)
        if answer.outcome is Outcome.OK:
            assert set(named) <= set(offered)
            self.named[pod.uid] = named[0]

    def _begin(self, uid: str) -> None:
        node = self.named.pop(uid)
        pod = next((one for one in self.server.api.pods.values() if one.uid == uid), None)
        if pod is None:
            return
        call = Call(uid, None, self.scene.now_s + 10.0)
        self.calls[uid] = call
        body = binding(uid, node, PodName=pod.content["metadata"]["name"])
        step = self._handle(BindRequested(BindCall.decode(body), self.scene.now_s))
        self._answer(call, step)

    def _can_go_on(self, call: Call) -> bool:
        if not isinstance(call.step, HoldBind):
            return True
        return not self.scene.groups.releases.is_held(call.uid) or self.scene.now_s >= call.until_s

    def _go_on(self, call: Call, end: str) -> None:
        step, now_s = call.step, self.scene.now_s
        if isinstance(step, HoldBind):
            self._answer(call, self._handle(BindHeld(step, now_s)))
        elif isinstance(step, ReadPod):
            self._answer(call, self._handle(BindPodRead(step, self.server.api.read(step), now_s)))
        elif end == "refused":
            written = Written(WriteResult.REJECTED, "no")
            self._answer(call, self._handle(BindingWritten(step, written, now_s)))
        elif end == "late":
            self.late.append(step)
            self._answer(call, self._handle(BindAbandoned(step, "out of time", now_s)))
        elif end == "lost":
            self.server.write(step)
            written = Written(WriteResult.UNKNOWN, "timeout")
            self._answer(call, self._handle(BindingWritten(step, written, now_s)))
        else:
            written = self.server.write(step)
            self._answer(call, self._handle(BindingWritten(step, written, now_s)))

    def _answer(self, call: Call, step: Any) -> None:
        call.step = step
        if isinstance(step, Answer):
            self.calls.pop(call.uid, None)
            if step.reason is Reason.OUTCOME_UNKNOWN:
                self.unknown.add(call.uid)
            else:
                self.released.discard(call.uid)

    def _any(self, data: st.DataObject, *, is_pending: bool = False) -> FakePod | None:
        pods = [one for one in self.server.api.pods.values() if not is_pending or one.node is None]
        return data.draw(st.sampled_from(pods)) if pods else None

    def _members(self, group: str) -> list[FakePod]:
        return [one for one in self.server.api.pods.values() if _group(one) == group]

    def _claims(self, pod: FakePod) -> bool:
        groups = self.scene.groups
        is_claimed = groups.claim(pod.uid) is not None and not groups.releases.is_released(pod.uid)
        return is_claimed and pod.uid not in self.unknown


def _group(pod: FakePod) -> str:
    group: str = pod.content["metadata"]["annotations"]["coterie.gpu/group"]
    return group


TestGroups = GroupsMachine.TestCase
TestGroups.settings = settings(max_examples=up_to(100), stateful_step_count=50)
