"""`kube` against the real API server: what a fake can only claim."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import time
import warnings
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from kube.client import ApiServer, Binding, ObjectEvent, Request, Transport
from kube.client.transport import MERGE_PATCH
from kube.errors import Conflict, Gone, KubeError, NotFound
from kube.objects import ObjectKey
from kube.watch import Reflector, Timing, watches

pytestmark = [pytest.mark.cluster, pytest.mark.own_plane]

GPU = "nvidia.com/gpu"
PLAN = "coterie.gpu/plan"
PODS = "/api/v1/namespaces/default/pods"
OTHER_UID = "5b1c1b0e-93a4-4a44-9a67-6ef0a8a1f6f2"
SOON_S = 60.0
LATE_S = 15.0
"""In a cluster in which nothing changes, a watch gets an event or ends once in 1.1 times its
duration, and here so much later: two watches of 27 s must not pass for one."""


class Received:
    """A sink that keeps what it received and lets a test wait for it."""

    def __init__(self):
        self.objects = {}
        self.faults = []
        self._changed = asyncio.Condition()

    async def replace(self, objects):
        """All there is."""
        self.objects = {one.name: one for one in objects}
        self._change()

    def seen(self, one):
        """One more."""
        self.objects[one.name] = one
        self._change()

    def gone(self, key):
        """One less."""
        self.objects.pop(key.name)
        self._change()

    def unread(self, key, reason):
        """None of the API server's own objects is unreadable."""
        raise AssertionError(key, reason)

    def failed(self, fault):
        """A failed try."""
        self.faults.append(fault)
        self._change()

    def _change(self):
        self._waker = asyncio.get_running_loop().create_task(self._wake())

    async def _wake(self):
        async with self._changed:
            self._changed.notify_all()

    async def until(self, condition, within_s=SOON_S):
        """Wait until it holds of this sink."""
        async with asyncio.timeout(within_s), self._changed:
            await self._changed.wait_for(lambda: condition(self))


def played(scenario):
    """Run a scenario to its end.

    asyncio forgets to close a connection whose TLS handshake is cancelled before it has begun, as
    happens where a reflector is stopped while it connects; that is not what these tests are about.
    """
    try:
        asyncio.run(scenario)
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


@asynccontextmanager
async def opened(plane, kubeconfig=None):
    """A transport to the test cluster."""
    transport = await Transport.connect(kubeconfig or plane.admin)
    try:
        yield transport
    finally:
        await transport.close()


async def synced(reflector):
    """Wait for the first list."""
    async with asyncio.timeout(SOON_S):
        while not reflector.is_synced:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.02)


@asynccontextmanager
async def reflected(door, source, timing=Timing()):  # noqa: B008 - it is frozen
    """A running reflector, synced, and its sink."""
    received = Received()
    reflector = Reflector(door, source, received, timing=timing)
    running = asyncio.create_task(reflector.run())
    try:
        await synced(reflector)
        yield reflector, received
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def create(door, path, content):
    """Create an object; one that is there from another test is replaced."""
    name = content["metadata"]["name"]
    with contextlib.suppress(NotFound):
        await door.request(
            Request("DELETE", f"{path}/{name}", SOON_S, query={"gracePeriodSeconds": "0"})
        )
    return json.loads(await door.request(Request("POST", path, SOON_S, body=content)))


async def create_pod(door, name, n_gpus=0, **spec):
    """Create a pod in the namespace `default`; its key and version."""
    limits = {GPU: str(n_gpus)} if n_gpus else {"cpu": "1"}
    container = {"name": "main", "image": "none", "resources": {"limits": limits}}
    content = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [container], **spec},
    }
    made = (await create(door, PODS, content))["metadata"]
    return ObjectKey("default", name, made["uid"]), made["resourceVersion"]


async def the_pod(api, name):
    """A pod of the namespace `default` that is there."""
    pod = await api.get_pod("default", name)
    assert pod is not None
    return pod


async def set_status(door, path, status):
    """Write an object's status, as a kubelet would."""
    request = Request(
        "PATCH", f"{path}/status", SOON_S, body={"status": status}, content_type=MERGE_PATCH
    )
    await door.request(request)


def test_nodes_are_reported_as_they_come_change_and_go(control_plane):
    """List, then watch, with allocatable devices and annotations."""

    async def run():
        async with opened(control_plane) as door:
            meta = {"name": "n1", "labels": {"topology.kubernetes.io/zone": "z"}}
            node = {"apiVersion": "v1", "kind": "Node", "metadata": meta}
            await create(door, "/api/v1/nodes", node)
            async with reflected(door, watches.nodes()) as (reflector, received):
                assert received.objects["n1"].zone == "z"
                room = {GPU: "8", "cpu": "4", "other.com/dust": "4000"}
                await set_status(door, "/api/v1/nodes/n1", {"allocatable": room, "capacity": room})
                await received.until(lambda it: it.objects["n1"].allocatable)
                assert received.objects["n1"].allocatable == {GPU: 8, "other.com/dust": 4000}
                await door.request(Request("DELETE", "/api/v1/nodes/n1", SOON_S))
                await received.until(lambda it: "n1" not in it.objects)
                assert (reflector.counts.n_lists - 1, received.faults) == (0, [])

    played(run())


def test_pods_are_reported_by_their_metadata_from_binding_to_end(control_plane):
    """A pod comes with its plan in one event, and leaves when it ends, though no status is sent."""

    async def run():
        async with opened(control_plane) as door:
            api = ApiServer(door)
            source = watches.assigned_pods([GPU])
            async with reflected(door, source) as (reflector, received):
                for name, n_gpus in (("with", 2), ("without", 0)):
                    pod, version = await create_pod(door, name, n_gpus)
                    await api.bind(Binding(pod, version, "n-reported", {PLAN: f"plan of {name}"}))
                    await received.until(lambda it, name=name: name in it.objects)
                assert received.objects["with"].plan == "plan of with"
                assert received.objects["with"].may_request
                assert not received.objects["without"].may_request
                await set_status(door, f"{PODS}/with", {"phase": "Succeeded"})
                await received.until(lambda it: "with" not in it.objects)
                assert (reflector.counts.n_lists - 1, received.faults) == (0, [])
            on_node = await api.list_pods_on("n-reported")
            assert {pod.name: pod.has_ended for pod in on_node} == {
                "with": True,
                "without": False,
            }

    played(run())


class Noting(Received):
    """Notes in which order the deletion of a pod shows."""

    def __init__(self):
        super().__init__()
        self.grace_s = []

    def seen(self, one):
        """One more."""
        self.grace_s.append(one.deletion_grace_s)
        super().seen(one)


@pytest.mark.parametrize(
    ("grace_s", "shown"),
    [
        pytest.param(30, [None, 30], id="its kubelet stops it first"),
        pytest.param(0, [None, 0], id="removed by force"),
    ],
)
def test_a_deletion_shows_what_it_leaves_the_containers(control_plane, grace_s, shown):
    """Also where the pod goes at once: the last event before its end has a grace period of 0."""
    name = f"deleted-{grace_s}"

    async def run():
        async with opened(control_plane) as door:
            received = Noting()
            reflector = Reflector(door, watches.assigned_pods([GPU]), received)
            running = asyncio.create_task(reflector.run())
            await synced(reflector)
            pod, version = await create_pod(door, name, 2)
            await ApiServer(door).bind(Binding(pod, version, "n-bound", {PLAN: "plan"}))
            await received.until(lambda it: name in it.objects)
            query = {"gracePeriodSeconds": str(grace_s)}
            await door.request(Request("DELETE", f"{PODS}/{name}", SOON_S, query=query))
            await received.until(lambda it: len(it.grace_s) == len(shown))
            if not grace_s:
                await received.until(lambda it: name not in it.objects)
            assert received.grace_s == shown
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    played(run())


def test_nominated_pods_are_reported_whole(control_plane):
    """They claim GPUs before they are bound."""

    async def run():
        async with (
            opened(control_plane) as door,
            reflected(door, watches.nominated_pods()) as (_, received),
        ):
            await create_pod(door, "nominee", 2)
            await set_status(door, f"{PODS}/nominee", {"nominatedNodeName": "n7"})
            await received.until(lambda it: "nominee" in it.objects)
            pod = received.objects["nominee"]
            assert (pod.nominated_node, pod.node_name) == ("n7", None)
            limits = json.loads(pod.body)["spec"]["containers"][0]["resources"]["limits"]
            assert limits == {GPU: "2"}

    played(run())


def test_watches_stay_fresh_where_nothing_changes(control_plane):
    """A picture that may be old must be distinguished from one in which nothing has happened.

    Watches after the first begin where nothing has changed since: they end without any bookmark,
    and must not count as failed. Shorter ones show that in the same time.
    """

    async def receive(door, n_times, timing):
        source = watches.nominated_pods()
        async with reflected(door, source, timing) as (reflector, received):
            for _ in range(n_times):
                before_s = reflector.observed_at_s
                async with asyncio.timeout(1.1 * timing.watch_s + LATE_S):
                    while reflector.observed_at_s == before_s:  # noqa: ASYNC110 - no event reports it
                        await asyncio.sleep(0.05)
            assert (reflector.counts.n_lists, reflector.counts.n_events) == (1, 0)
            assert received.faults == []

    async def run():
        async with opened(control_plane) as door:
            await asyncio.gather(receive(door, 1, Timing()), receive(door, 5, Timing(watch_s=3.0)))

    played(run())


class OldWatch:
    """A door whose first watch begins at a resourceVersion of long ago."""

    def __init__(self, door):
        self._door = door
        self._is_first = True

    async def request(self, request):
        """As it is."""
        return await self._door.request(request)

    def lines(self, request):
        """From version 1, once."""
        if self._is_first:
            self._is_first = False
            request = replace(request, query={**request.query, "resourceVersion": "1"})
        return self._door.lines(request)


def test_a_version_that_the_server_has_forgotten_leads_to_a_list(control_plane):
    """410: the list brings what the watch cannot, and the watch goes on."""
    # A server that has just started knows no history.
    control_plane.kill_api_server()
    control_plane.start_api_server()

    async def run():
        async with (
            opened(control_plane) as door,
            reflected(OldWatch(door), watches.nominated_pods()) as (reflector, received),
        ):
            await received.until(lambda it: it.faults)
            assert isinstance(received.faults[0].error, Gone)
            await create_pod(door, "late", 2)
            await set_status(door, f"{PODS}/late", {"nominatedNodeName": "n7"})
            await received.until(lambda it: "late" in it.objects)
            assert (reflector.counts.n_lists - 1, len(received.faults)) == (1, 1)

    played(run())


def test_a_killed_api_server_is_found_again(control_plane):
    """SIGKILL, changes before the watches are back, and nothing is missed."""

    async def run():
        async with opened(control_plane) as door:
            api = ApiServer(door)
            async with reflected(door, watches.assigned_pods([GPU])) as (reflector, received):
                control_plane.kill_api_server()
                await received.until(lambda it: len(it.faults) >= 3)
                assert all(fault.error.is_transient for fault in received.faults)
                assert reflector.is_synced
                await asyncio.to_thread(control_plane.start_api_server)
                ready_s = time.monotonic()
                pod, version = await create_pod(door, "after", 2)
                await api.bind(Binding(pod, version, "n1", {PLAN: "p"}))
                await received.until(lambda it: "after" in it.objects)
                assert reflector.observed_at_s is not None
                assert reflector.observed_at_s > ready_s

    played(run())


def test_a_binding_writes_the_plan_and_binds_once(control_plane):
    """One transaction; whatever forbids it is a conflict, and the pod itself shows which."""

    async def run():
        async with opened(control_plane) as door:
            api = ApiServer(door)
            pod, version = await create_pod(door, "bound", 2)
            await api.annotate_pod("default", "bound", pod.uid, {"a": "b"})
            with pytest.raises(Conflict, match="ResourceVersion in precondition"):
                await api.bind(Binding(pod, version, "n1", {PLAN: "stale"}))
            with pytest.raises(Conflict, match="UID in precondition"):
                await api.bind(Binding(replace(pod, uid=OTHER_UID), "", "n1", {PLAN: "other"}))
            await api.bind(Binding(pod, "", "n1", {PLAN: "right"}))
            with pytest.raises(Conflict, match='already assigned to node "n1"'):
                await api.bind(Binding(pod, "", "n2", {PLAN: "late"}))
            found = await the_pod(api, "bound")
            assert (found.node_name, found.annotations) == ("n1", {"a": "b", PLAN: "right"})
            gated, _ = await create_pod(door, "gated", 2, schedulingGates=[{"name": "x.y/z"}])
            with pytest.raises(Conflict, match="schedulingGates"):
                await api.bind(Binding(gated, "", "n1", {}))
            assert (await the_pod(api, "gated")).is_gated
            absent = ObjectKey("default", "absent", "")
            with pytest.raises(NotFound):
                await api.bind(Binding(absent, "", "n1", {}))
            assert await api.get_pod("default", "absent") is None

    played(run())


def test_a_pod_that_is_being_deleted_is_not_bound(control_plane):
    """It conflicts like the others; the pod itself says why."""

    async def run():
        async with opened(control_plane) as door:
            api = ApiServer(door)
            pod, _ = await create_pod(door, "leaving", 2)
            await door.request(
                Request(
                    "PATCH",
                    f"{PODS}/leaving",
                    SOON_S,
                    body={"metadata": {"finalizers": ["x.y/z"]}},
                    content_type=MERGE_PATCH,
                )
            )
            await door.request(Request("DELETE", f"{PODS}/leaving", SOON_S))
            with pytest.raises(Conflict, match="is being deleted"):
                await api.bind(Binding(pod, "", "n1", {}))
            assert (await the_pod(api, "leaving")).is_deleting
            await door.request(
                Request(
                    "PATCH",
                    f"{PODS}/leaving",
                    SOON_S,
                    body={"metadata": {"finalizers": None}},
                    content_type=MERGE_PATCH,
                )
            )

    played(run())


def test_an_annotation_is_set_on_this_very_pod(control_plane):
    """Not on another of its name, and never against validation."""

    async def run():
        async with opened(control_plane) as door:
            api = ApiServer(door)
            pod, version = await create_pod(door, "annotated")
            newer = await api.annotate_pod("default", "annotated", pod.uid, {"a": "b", "c": "d"})
            # Another replica that finds the same writes nothing: watchers are not notified again.
            again = await api.annotate_pod("default", "annotated", pod.uid, {"a": "b", "c": "d"})
            assert again == newer
            assert int(newer) > int(version)
            await api.annotate_pod("default", "annotated", pod.uid, {"a": None})
            assert (await the_pod(api, "annotated")).annotations == {"c": "d"}
            for name, uid in (("annotated", OTHER_UID), ("absent", pod.uid)):
                with pytest.raises(NotFound):
                    await api.annotate_pod("default", name, uid, {"a": "b"})
            with pytest.raises(KubeError) as caught:
                await api.annotate_pod("default", "annotated", pod.uid, {"no key": "b"})
            assert (caught.value.status, caught.value.fields) == (422, ("metadata.annotations",))

    played(run())


def test_a_request_of_devices_without_a_limit_is_refused(control_plane):
    """So `explain -f` and `what-if` refuse it, too; a limit alone is copied."""

    async def run():
        async with opened(control_plane) as door:
            container: dict[str, object] = {"name": "main", "image": "none"}
            content = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "of-devices"},
                "spec": {"containers": [container]},
            }
            container["resources"] = {"requests": {GPU: "2"}}
            with pytest.raises(KubeError) as caught:
                await create(door, PODS, content)
            assert caught.value.status == 422
            assert "Limit must be set" in str(caught.value)
            container["resources"] = {"limits": {GPU: "2"}}
            (made,) = (await create(door, PODS, content))["spec"]["containers"]
            assert made["resources"]["requests"] == {GPU: "2"}

    played(run())


def test_events_are_shown_by_kubectl(control_plane):
    """On the pod and on the node that they are about."""

    async def run():
        async with opened(control_plane) as door:
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "subject"}}
            made = await create(door, "/api/v1/nodes", node)
            pod, _ = await create_pod(door, "subject")
            node_key = ObjectKey("", "subject", made["metadata"]["uid"])
            for key, about in (("a1", pod), ("b2", node_key)):
                event = ObjectEvent(
                    about,
                    is_warning=True,
                    reason="NoSet",
                    message="no set of 4",
                    at=datetime.now(UTC),
                    component="coterie",
                    instance="host",
                    key=key,
                )
                await ApiServer(door).create_event(event)
                with pytest.raises(Conflict):  # of another replica
                    await ApiServer(door).create_event(event)

    played(run())
    for kind in ("pod", "node"):
        described = control_plane.kubectl("describe", kind, "subject")
        assert "Warning NoSet" in " ".join(described.split())
        assert "coterie no set of 4" in " ".join(described.split())


def test_budgets_are_those_of_the_api_server(control_plane):
    """Selectors as users write them."""

    async def run():
        async with opened(control_plane) as door:
            selector = {
                "matchLabels": {"app": "a"},
                "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["test"]}],
            }
            content = {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": "few"},
                "spec": {"minAvailable": 1, "selector": selector},
            }
            path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
            await create(door, path, content)
            (budget,) = await ApiServer(door).list_pdbs()
            assert (budget.name, budget.n_allowed) == ("few", 0)
            assert budget.covers("default", "p", {"app": "a"})
            assert not budget.covers("default", "p", {"app": "a", "tier": "test"})

    played(run())


def test_a_reflector_that_is_not_allowed_waits_until_it_is(control_plane):
    """A token of a service account, and a role that comes late."""
    control_plane.kubectl("create", "serviceaccount", "coterie")
    kubeconfig = control_plane.service_account("default", "coterie")

    async def run():
        async with opened(control_plane, kubeconfig) as door:
            received = Received()
            reflector = Reflector(door, watches.nodes(), received)
            running = asyncio.create_task(reflector.run())
            try:
                await received.until(lambda it: it.faults)
                assert (received.faults[0].error.status, reflector.is_synced) == (403, False)
                await asyncio.to_thread(
                    control_plane.kubectl,
                    "create",
                    "clusterrolebinding",
                    "coterie",
                    "--clusterrole=cluster-admin",
                    "--serviceaccount=default:coterie",
                )
                await synced(reflector)
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

    played(run())
