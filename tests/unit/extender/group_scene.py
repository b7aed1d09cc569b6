"""Groups on a live engine of nodes with four GPUs, and the log of what they go through."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from extender.bind import BindCall, HoldBind, WriteBinding, WriteResult, Written
from extender.decision_log import DecisionLog
from extender.engine import Engine, Gateway
from extender.engine.events import (
    BindHeld,
    BindingWritten,
    BindRequested,
    FreshnessSet,
    NodesListed,
    NominationsListed,
    PendingDeleted,
    PendingListed,
    PendingUpdated,
    PodsListed,
    RequeueDue,
    TimePassed,
    VerbCalled,
)
from extender.protocol import Answer, Outcome, Verb
from extender.state import LiveCluster
from tests.unit.extender.engines import RULES
from tests.unit.extender.feeds import node, whole
from tests.unit.extender.pods import args, binding, pod

if TYPE_CHECKING:
    from extender.errors import DecisionLogError
    from extender.groups import GroupStatus
    from kube.objects import NodeFacts, PodObject

__all__ = ["LEAF", "GroupScene", "all_bound", "as_json", "claim_all", "leaf", "n_free"]

LEAF = "network.topology.nvidia.com/leaf"


def leaf(name: str, domain: str, **changes: Any) -> NodeFacts:
    """A node below a leaf switch."""
    return replace(node(name), **{"domains": {LEAF: domain}, **changes})


class GroupScene:
    """Two leaves of two nodes each, unless others are given; seconds pass as a test says.

    No pod waits at the start, or with `is_listed=False` that is not known yet.
    """

    def __init__(self, *nodes: NodeFacts, is_listed: bool = True, **rules: Any) -> None:
        made = nodes or tuple(leaf(f"n{i}", f"S{i // 2}") for i in range(4))
        self.names = [one.name for one in made]
        self.file = io.StringIO()
        self.now_s = 100.0
        used = replace(RULES, **rules)
        cluster = LiveCluster(used.resources, demand=used.demand)
        engine = Engine(cluster, used)
        self.ended: list[DecisionLogError] = []
        log = DecisionLog(self.file, engine.rules, self.ended.append)
        self.gateway = Gateway(engine, record=log.record)
        self.gateway.handle(NodesListed(made))
        self.gateway.handle(PodsListed(()))
        self.gateway.handle(NominationsListed(()))
        if is_listed:
            self.relist()
        self.pass_s(0.0)

    @property
    def groups(self) -> Any:
        """The engine's."""
        return self.gateway.engine.groups

    @property
    def lines(self) -> list[str]:
        """The decision log so far."""
        return self.file.getvalue().splitlines(keepends=True)

    def pass_s(self, seconds: float) -> None:
        """Time passes, the watches are heard."""
        self.now_s += seconds
        self.gateway.handle(FreshnessSet(is_synced=True, observed_at_s=self.now_s))
        self.gateway.handle(TimePassed(self.now_s))

    def pending(
        self, uid: str, group: str = "g", size: int | None = 2, n_gpus: int = 4, **more: Any
    ) -> PodObject:
        """A member as the watch of pending pods shows it."""
        return whole(
            uid,
            None,
            body=self.manifest(uid, group, size, n_gpus, **more),
            annotations={"coterie.gpu/group": group},
            phase="Pending",
        )

    def manifest(
        self, uid: str, group: str = "g", size: int | None = 2, n_gpus: int = 4, **more: Any
    ) -> dict[str, Any]:
        """A member's JSON; further annotations by their short names."""
        sized = {} if size is None else {"group_size": str(size)}
        return pod(n_gpus, uid=uid, group=group, **sized, **more)

    def see(self, *uids: str, **fields: Any) -> None:
        """The watch shows members."""
        for uid in uids:
            self.gateway.handle(PendingUpdated(self.pending(uid, **fields), self.now_s))

    def seen(self, one: PodObject, **changes: Any) -> PendingUpdated:
        """The watch shows a pod that has changed."""
        return PendingUpdated(replace(one, **changes), self.now_s)

    def relist(self, *uids: str, **fields: Any) -> None:
        """The watch lists these members, and no others."""
        self.see(*uids, **fields)
        self.gateway.handle(PendingListed(uids, self.now_s))

    def lose(self, *uids: str) -> None:
        """Pods without a node are gone, or have one."""
        for uid in uids:
            self.gateway.handle(PendingDeleted(uid))

    def filter(self, uid: str, *names: str, **fields: Any) -> Answer:
        """kube-scheduler tries a member."""
        return self.call(self.manifest(uid, **fields), *names)

    def call(self, manifest: dict[str, Any], *names: str) -> Answer:
        """The same of a pod of any content."""
        body = args(manifest, list(names or self.names))
        return self.gateway.handle(VerbCalled(Verb.FILTER, body, self.now_s))

    def node_of(self, uid: str, **fields: Any) -> str | None:
        """The node that filter names."""
        names = json.loads(self.filter(uid, **fields).body)["NodeNames"]
        return names[0] if names else None

    def woken(self) -> list[str]:
        """Who is woken now, after what is due was planned."""
        return [one.uid for one in self.gateway.handle(RequeueDue(self.now_s))]

    def free(self, name: str) -> int:
        """How many devices of a node are free."""
        return self.gateway.cluster.snapshot.nodes[name].free.bit_count()

    def status(self, key: tuple[str, str] = ("default", "g")) -> GroupStatus:
        """How a group stands."""
        status: GroupStatus = self.groups.readings.status(key)
        return status

    def where(self, uid: str) -> str:
        """The node of a pod that is bound."""
        pod = self.gateway.cluster.pods.get(uid)
        assert pod is not None
        return str(pod.node)

    def place(self, *uids: str, refused: tuple[str, ...] = (), **more: Any) -> list[Answer]:
        """Members come, are planned and bound; the Bindings of those `refused` are not accepted."""
        fields: dict[str, Any] = {"size": len(uids), **more}
        self.see(*uids, **fields)
        for uid in uids:
            self.filter(uid, **fields)
        self.woken()
        nodes = {uid: self.node_of(uid, **fields) for uid in uids}
        steps = {uid: self.begin(uid, str(on)) for uid, on in nodes.items()}
        return [self.end(step, is_accepted=uid not in refused) for uid, step in steps.items()]

    def begin(self, uid: str, on: str) -> Any:
        """A bind call comes."""
        return self.gateway.handle(BindRequested(BindCall.decode(binding(uid, on)), self.now_s))

    def proceed(self, step: Any) -> Any:
        """A bind that is held looks again whether it may write its Binding."""
        return (
            self.gateway.handle(BindHeld(step, self.now_s)) if isinstance(step, HoldBind) else step
        )

    def end(self, step: Any, *, is_accepted: bool = True) -> Answer:
        """A bind goes to its end."""
        step = self.proceed(step)
        if isinstance(step, WriteBinding):
            result = WriteResult.ACCEPTED if is_accepted else WriteResult.REJECTED
            step = self.gateway.handle(BindingWritten(step, Written(result), self.now_s))
        assert isinstance(step, Answer)
        return step


def all_bound(answers: list[Answer]) -> bool:
    """Whether each bind ended well."""
    return all(one.outcome is Outcome.OK for one in answers)


def as_json(content: object) -> bytes:
    """A pod's body."""
    return json.dumps(content).encode()


def claim_all(scene: GroupScene, *uids: str, **fields: Any) -> dict[str, str]:
    """Members come, are tried, planned, and tried again; returns their nodes."""
    scene.see(*uids, **fields)
    for uid in uids:
        scene.filter(uid, **fields)
    scene.woken()
    return {uid: str(scene.node_of(uid, **fields)) for uid in uids}


def n_free(scene: GroupScene) -> int:
    """Free devices of all nodes."""
    return sum(scene.free(name) for name in scene.names)
