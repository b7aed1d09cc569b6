"""Pods with GPUs that kube-scheduler leaves no node for wait all the same, for people."""

from __future__ import annotations

import asyncio
import json

from extender.engine import Engine
from extender.engine.events import NodeDeleted, PendingDeleted, PendingUpdated
from extender.protocol import Verb
from extender.read_api import NotOffered, ReadApi
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


def made():
    """An engine without nodes, and its pods that were not offered."""
    engine = Engine(live(), RULES)
    return engine, NotOffered(engine)


def names(found):
    """The uids of pods."""
    return [one.uid for one in found.pods()]


def test_a_pod_shows_the_schedulers_message_and_its_age():
    """`kubectl describe` has the same."""
    engine, found = made()
    found.take(PendingUpdated(seen(), 5.0))
    api = ReadApi(engine, clock=lambda: 9.0, is_ready=lambda: True, not_offered=found)

    async def read():
        pending = await api.refresh_pending()
        cluster = await api.refresh()
        page = await api.pending(cluster, pending, limit=10, after=None)
        return b"".join(page.chunks()), api.cluster(cluster)

    text, cluster = asyncio.run(read())
    (item,) = json.loads(text)["items"]
    assert item["reason"] == (
        "kube-scheduler has not offered the pod to the extender: 0/3 nodes are available: "
        "3 Insufficient nvidia.com/gpu."
    )
    assert (item["reason_label"], item["size_gpus"]) == ("not_offered", 4)
    assert (item["since_unix_s"], item["last_filtered_unix_s"]) == (1795590000.0, None)
    assert json.loads(cluster)["pods_pending"] == 1


def test_an_event_that_changes_nothing_of_it_leaves_the_pod():
    """Every event has a new resourceVersion; what is shown is made again for another pod alone."""
    _, found = made()
    found.take(PendingUpdated(seen(metadata__resourceVersion="1"), 5.0))
    (first,) = found.pods()
    found.take(PendingUpdated(seen(metadata__resourceVersion="2"), 6.0))
    assert next(found.pods()) is first
    found.take(PendingUpdated(seen(message="other", metadata__resourceVersion="3"), 7.0))
    assert next(found.pods()).message == "other"


def test_what_would_make_room_is_on_a_node_that_its_selector_allows():
    """The pod's whole spec is at hand."""
    cluster = live(node("n1"), node("n2"))
    for name in ("n1", "n2"):
        cluster.pods.update(facts(f"of-{name}", plan_of(name, *ids(name))))
    engine = Engine(cluster, RULES)
    found = NotOffered(engine)
    field = {"key": "metadata.name", "operator": "In", "values": ["n2"]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    found.take(PendingUpdated(seen(spec__affinity=affinity), 5.0))
    api = ReadApi(engine, clock=lambda: 9.0, is_ready=lambda: True, not_offered=found)

    async def read():
        pending = await api.refresh_pending()
        page = await api.pending(await api.refresh(), pending, limit=10, after=None)
        return b"".join(page.chunks())

    (item,) = json.loads(asyncio.run(read()))["items"]
    assert item["would_fit"]["node"] == "n2"


def test_a_pod_that_was_not_tried_yet_has_no_message():
    """Its scheduler may be down."""
    _, found = made()
    found.take(PendingUpdated(seen(message=None), 0.0))
    found.take(PendingUpdated(seen("u2", status__conditions=None), 0.0))
    assert [one.message for one in found.pods()] == ["", ""]
    found.take(PendingUpdated(seen("u2", metadata__creationTimestamp="soon"), 0.0))
    assert [one.since_s for one in found.pods()][1] == 0.0


def test_only_pods_that_wait_for_our_gpus_count():
    """Each of these is another's, has no GPU, or waits for something else."""
    _, found = made()
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
        found.take(PendingUpdated(one, 0.0))
    assert names(found) == []
    assert found.n_pods == 0


def test_a_pod_leaves_when_it_is_known_otherwise():
    """Rejected by filter it is in the pool; gone, bound or no longer listed it waits no more."""
    engine, found = made()
    for uid in ("u1", "u2", "u3"):
        found.take(PendingUpdated(seen(uid), 0.0))
    assert names(found) == ["u1", "u2", "u3"]
    engine.answer(Verb.FILTER, args(pod(4, uid="u1"), ["nowhere"]), 0.0)
    assert names(found) == ["u2", "u3"]
    found.take(PendingDeleted("u2"))
    found.take(NodeDeleted("n"))
    assert names(found) == ["u3"]
    found.take(PendingUpdated(seen("u3", spec__nodeName="n"), 0.0))
    assert names(found) == []


def test_no_more_are_kept_than_of_rejected_pods(monkeypatch):
    """Else a broken controller could fill the memory."""
    monkeypatch.setattr("extender.read_api.not_offered.MAX_PODS", 2)
    _, found = made()
    for uid in ("u1", "u2", "u3"):
        found.take(PendingUpdated(seen(uid), 0.0))
    assert names(found) == ["u2", "u3"]
