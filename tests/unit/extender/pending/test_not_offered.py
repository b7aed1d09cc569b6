"""Pods with GPUs that kube-scheduler leaves no node for wait all the same, for people."""

from __future__ import annotations

import asyncio
import json

from extender.engine import Engine
from extender.pending import PendingPods, shown_pod
from extender.placement import Rater
from extender.protocol import Verb
from extender.read_api import ReadApi
from extender.rules import Rules
from kube.objects import read_pod
from tests.unit.extender.feeds import facts, ids, live, node, plan_of
from tests.unit.extender.pods import GPU, args, pod
from topology.value import DEFAULT_DEMAND

MESSAGE = "0/3 nodes are available:\n 3 Insufficient nvidia.com/gpu."
RULES = Rules((GPU,), 20, (0.02,), DEFAULT_DEMAND, 60.0, 30.0, scheduler_names=("gpu",))


def seen(uid="u1", gpus: int | None = 4, *, message: str | None = MESSAGE, **changed):
    """A pending pod as the watch shows it."""
    content = pod(gpus, uid=uid)
    content["metadata"]["creationTimestamp"] = "2026-11-25T07:00:00Z"
    condition = {"type": "PodScheduled", "status": "False", "message": message}
    content["status"]["conditions"] = [{"type": "Ready", "status": "False"}, condition]
    for path, value in changed.items():
        part, _, key = path.partition("__")
        content[part][key] = value
    return read_pod(content)


class Shown:
    """An engine, and what the watch of pending pods shows it."""

    def __init__(self, cluster=None) -> None:
        self.engine = Engine(cluster or live(), RULES)

    def see(self, one):
        """The watch shows a pod."""
        self.engine.pending.show(one.uid, shown_pod(one, RULES))

    @property
    def pods(self):
        """The pods that wait."""
        return [*self.engine.waiting()]

    @property
    def uids(self):
        """Their uids."""
        return [one.uid for one in self.pods]

    def items(self):
        """Their JSON, and that of the cluster."""
        api = ReadApi(self.engine, clock=lambda: 9.0, is_ready=lambda: True)

        async def read():
            pending, cluster = await api.refresh_pending(), await api.refresh()
            page = await api.pending(cluster, pending, limit=10, after=None)
            return b"".join(page.chunks()), api.cluster(cluster)

        text, cluster = asyncio.run(read())
        return json.loads(text)["items"], json.loads(cluster)


def test_a_pod_shows_the_schedulers_message_and_its_age():
    """`kubectl describe` has the same."""
    shown = Shown()
    shown.see(seen())
    (item,), cluster = shown.items()
    assert item["reason"] == (
        "kube-scheduler has not offered the pod to the extender: 0/3 nodes are available: "
        "3 Insufficient nvidia.com/gpu."
    )
    assert (item["reason_label"], item["size_gpus"]) == ("not_offered", 4)
    assert (item["since_unix_s"], item["last_filtered_unix_s"]) == (1795590000.0, None)
    assert cluster["pods_pending"] == 1


def test_an_event_that_changes_nothing_of_it_leaves_the_pod():
    """Every event has a new resourceVersion; what is shown is made again for another pod alone."""
    shown = Shown()
    shown.see(seen(metadata__resourceVersion="1"))
    (first,) = shown.pods
    shown.see(seen(metadata__resourceVersion="2"))
    assert shown.pods[0] is first
    shown.see(seen(message="other", metadata__resourceVersion="3"))
    assert shown.pods[0].message == "other"


def test_what_would_make_room_is_on_a_node_that_its_selector_allows():
    """The pod's whole spec is at hand."""
    cluster = live(node("n1"), node("n2"))
    for name in ("n1", "n2"):
        cluster.pods.update(facts(f"of-{name}", plan_of(name, *ids(name))))
    shown = Shown(cluster)
    field = {"key": "metadata.name", "operator": "In", "values": ["n2"]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    shown.see(seen(spec__affinity=affinity))
    (item,), _ = shown.items()
    assert item["would_fit"]["node"] == "n2"


def test_a_pod_that_was_not_tried_yet_has_no_message():
    """Its scheduler may be down."""
    shown = Shown()
    shown.see(seen(message=None))
    shown.see(seen("u2", status__conditions=None))
    assert [one.message for one in shown.pods] == ["", ""]
    shown.see(seen("u2", metadata__creationTimestamp="soon"))
    assert shown.pods[1].since_s == 0.0


def test_only_pods_that_wait_for_our_gpus_count():
    """Each of these is another's, has no GPU, or waits for something else."""
    shown = Shown()
    for one in (
        seen(spec__schedulerName="other"),
        seen(gpus=None),
        seen(gpus=0),
        seen(spec__nodeName="n"),
        seen(spec__schedulingGates=[{"name": "g"}]),
        seen(metadata__deletionTimestamp="2026-11-25T07:00:00Z"),
        seen(status__phase="Failed"),
        seen(metadata__annotations={"coterie.gpu/affinity": "nvlnk"}),
    ):
        shown.see(one)
    assert shown.pods == []


def test_a_pod_leaves_when_it_is_known_otherwise():
    """Rejected by filter it is listed as that; gone, placed or bound it waits no more."""
    shown = Shown()
    for uid in ("u1", "u2", "u3", "u4"):
        shown.see(seen(uid))
    assert shown.uids == ["u1", "u2", "u3", "u4"]
    shown.engine.answer(Verb.FILTER, args(pod(4, uid="u2"), ["nowhere"]), 0.0)
    assert shown.uids == ["u2", "u1", "u3", "u4"]
    assert shown.pods[0].message == ""
    shown.engine.pending.show("u1", None)
    shown.see(seen("u3", spec__nodeName="n"))
    assert shown.uids == ["u2", "u4"]
    shown.engine.cluster.pods.update(facts("u4", plan_of("n1", *ids("n1"))))
    assert shown.uids == ["u2"]


def test_what_the_watch_shows_is_not_recalled():
    """It is in no decision log: a replay could not repeat a bind from it."""
    shown = Shown()
    shown.see(seen())
    (one,) = shown.pods
    assert shown.engine.pending.recall("u1", f"{one.namespace}/{one.name}") is None


def test_no_more_are_kept_than_of_rejected_pods():
    """Else a broken controller could fill the memory."""
    pods = PendingPods(Rater(), wake_after_s=0.5, max_pods=2)
    for uid in ("u1", "u2", "u3"):
        pods.show(uid, shown_pod(seen(uid), RULES))
    assert [one.uid for one in pods.waiting(lambda _: False)] == ["u2", "u3"]
