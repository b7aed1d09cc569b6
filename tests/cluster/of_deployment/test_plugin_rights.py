"""What the node plugin may do, and what no other user may: real tokens on a real API server.

Everything runs twice: with the rights of the node plugin, and with a plugin that was made
cluster-admin, where the admission policies alone stand between a node and all others.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
import ssl
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from kube.client import ApiServer, Transport
from plugin.publish import NodeWritten, Publisher
from plugin.publish.node_annotator import WriteTiming
from tests.cluster.control.control_plane import MASTERS, ControlPlane
from tests.cluster.control.credentials import kubeconfig
from tests.cluster.control.manifests import apply_manifest, await_so, documents, rendered
from topology.annotations import DevicesReport, TopologyManagerPolicy, decode_devices
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.cluster

NAMESPACE, ACCOUNT = "coterie-node", "coterie-plugin"
OWN, OTHER = "node-0", "node-1"
NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
KEYS = (names.TOPOLOGY, names.DEVICES)
GENUINE = dict.fromkeys(KEYS, "genuine")
JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
ATTACH = "volumes.kubernetes.io/controller-managed-attach-detach"
TAINT = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}
BAD_RIGHTS = 403
DRY_RUN = {"dryRun": "All"}


def node(name: str, **annotations: str) -> dict[str, Any]:
    """A Node of the tests, as its kubelet would make it; keys are those of Coterie."""
    keys = {names.PREFIX + key: value for key, value in annotations.items()}
    room = {"cpu": "64", "memory": "1Ti", "pods": "110", names.DEFAULT_RESOURCE: "8"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "tier": "gpu"},
            "annotations": {ATTACH: "true", **keys},
            "finalizers": ["example.com/keep"],
        },
        "spec": {"taints": [TAINT]},
        "status": {"capacity": room, "allocatable": room},
    }


@dataclass(frozen=True)
class Cluster:
    """A control plane with the manifests on it, and two nodes."""

    plane: ControlPlane
    is_wide: bool
    serial: Iterator[int]

    def token(self, on: str | None, *, namespace: str = NAMESPACE, is_bound: bool = True) -> str:
        """A token of the plugin's account, as the kubelet of a node gets it for the plugin's pod.

        `on` None: the pod is on no node yet. `is_bound` False: a token that is bound to no pod.
        """
        reference = {}
        if is_bound:
            pod = {
                "metadata": {"name": f"plugin-{next(self.serial)}"},
                "spec": {
                    "serviceAccountName": ACCOUNT,
                    "containers": [{"name": "main", "image": "none"}],
                }
                | ({"nodeName": on} if on else {}),
            }
            made = self.post(f"/api/v1/namespaces/{namespace}/pods", pod)["metadata"]
            reference = {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod"}}
            reference["boundObjectRef"] |= {"name": made["name"], "uid": made["uid"]}
        request = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1"}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{ACCOUNT}/token"
        answer = self.post(path, request | {"spec": {"expirationSeconds": 3600} | reference})
        return str(answer["status"]["token"])

    def post(self, path: str, body: object) -> Any:
        """Create something as the admin."""
        answer = self.plane.client.post(path, json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def plugin(self, on: str | None, **how: Any) -> httpx.Client:
        """A client with a token of the plugin's account and no other credentials."""
        return self.client(self.token(on, **how))

    def client(self, token: str) -> httpx.Client:
        """A client with a token."""
        context = ssl.create_default_context(cadata=self.plane.authority.certificate.decode())
        return httpx.Client(
            base_url=self.plane.url,
            verify=context,
            timeout=120,
            trust_env=False,
            headers={"Authorization": f"Bearer {token}"},
        )

    def config(self, on: str) -> Path:
        """A kubeconfig of the plugin of a node."""
        path = self.plane.folder / f"plugin-{next(self.serial)}.kubeconfig"
        text = kubeconfig(self.plane.url, self.plane.authority.certificate, self.token(on))
        path.write_text(text, encoding="utf-8")
        return path

    def stored(self, name: str) -> dict[str, Any]:
        """A Node as it is stored, without what every write touches."""
        found: dict[str, Any] = self.plane.client.get(f"{NODES}/{name}").json()
        for key in ("managedFields", "resourceVersion"):
            found["metadata"].pop(key, None)
        return found

    def version(self, name: str) -> str:
        """The resourceVersion of a Node."""
        return str(self.plane.client.get(f"{NODES}/{name}").json()["metadata"]["resourceVersion"])

    def send(
        self,
        method: str,
        path: str,
        body: object,
        *,
        content_type: str = MERGE,
        user: tuple[str, ...] = ("root", MASTERS),
        client: httpx.Client | None = None,
    ) -> httpx.Response:
        """One request, as a client, else as a user and its groups (as `kubectl --as` does)."""
        headers = [("Content-Type", content_type)]
        if client is None:
            name, *groups = user
            headers += [("Impersonate-User", name)]
            headers += [("Impersonate-Group", group) for group in groups]
        # A manager that applies again without a key that it owns removes it: each is a new one.
        manager = {"fieldManager": f"test-{next(self.serial)}", "force": "true"}
        query = manager if content_type == APPLY else {}
        return (client or self.plane.client).request(
            method, path, content=json.dumps(body), headers=headers, params=query
        )


def keys(**values: str | None) -> dict[str, Any]:
    """A patch of Coterie's keys of a Node."""
    return {"metadata": {"annotations": {names.PREFIX + key: one for key, one in values.items()}}}


def is_guarded(plane: ControlPlane) -> bool:
    """Whether the API server enforces the policies, which it does a moment after it took them."""
    forged = node("trial", topology="forged")
    answer = plane.client.post(NODES, json=forged, params=DRY_RUN)
    pod = {
        "metadata": {"name": "trial", "annotations": {names.PLAN: "forged"}},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }
    other = plane.client.post(PODS, json=pod, params=DRY_RUN)
    return answer.status_code == other.status_code == BAD_RIGHTS


@pytest.fixture(scope="module", params=[False, True], ids=["shipped", "cluster-admin"])
def cluster(request, binaries, tmp_path_factory):
    """The manifests, applied with kubectl; once more with a plugin that RBAC lets do all."""
    with ControlPlane(binaries, tmp_path_factory.mktemp("plugin")) as plane:
        apply_manifest(plane, "second-scheduler")
        if request.param:
            account = f"--serviceaccount={NAMESPACE}:{ACCOUNT}"
            plane.kubectl(
                "create", "clusterrolebinding", "w", "--clusterrole=cluster-admin", account
            )
        await_so(lambda: is_guarded(plane), "policies")
        made = Cluster(plane, request.param, itertools.count())
        for name in (OWN, OTHER):
            made.post(NODES, node(name))
            with made.plugin(name) as plugin:
                # Rights, and who is in force, come a moment after they were written, too.
                await_so(partial(is_let, made, plugin, name), "rights")
        yield made


def is_let(cluster, plugin, name):
    """Whether a plugin may write the keys of its Node; then they are there."""
    genuine = keys(topology="genuine", devices="genuine")
    return cluster.send("PATCH", f"{NODES}/{name}", genuine, client=plugin).is_success


@pytest.fixture(scope="module")
def plugin(cluster):
    """The plugin of the first node."""
    with cluster.plugin(OWN) as client:
        yield client


# What the plugin does


@pytest.mark.parametrize("content_type", [MERGE, STRATEGIC, APPLY])
def test_a_plugin_writes_its_own_nodes_keys(cluster, plugin, content_type):
    """Set, changed, removed, set again; and everything else stays."""
    before = cluster.stored(OWN)
    for values in ({"topology": "a"}, {"topology": "b", "devices": "c"}, {"topology": "genuine"}):
        body = keys(**values)
        if content_type == APPLY:
            body |= {"apiVersion": "v1", "kind": "Node"}
            body["metadata"]["name"] = OWN
        answer = cluster.send(
            "PATCH", f"{NODES}/{OWN}", body, content_type=content_type, client=plugin
        )
        assert answer.status_code == 200, answer.text
    for value in (None, "genuine"):
        answer = cluster.send("PATCH", f"{NODES}/{OWN}", keys(devices=value), client=plugin)
        assert answer.status_code == 200, answer.text
        assert answer.json()["metadata"]["annotations"].get(names.DEVICES) == value
    assert cluster.stored(OWN) == before


def published(cluster, topology, report):
    """Let a publisher with a plugin's token make the Node carry these; the writes that it took."""
    writes: list[NodeWritten] = []

    def emit(event):
        """Expect writes, and no failure."""
        assert isinstance(event, NodeWritten), event
        writes.append(event)

    async def run():
        transport = await Transport.connect(cluster.config(OWN))
        pace = WriteTiming(coalesce_s=0.01, urgent_s=0.01)
        publisher = Publisher(ApiServer(transport), OWN, emit=emit, pace=pace)
        publisher.publish(topology, report)
        running = asyncio.ensure_future(publisher.run())
        try:
            while not publisher.is_published:
                assert not running.done(), running.result()
                await asyncio.sleep(0.01)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await transport.close()

    asyncio.run(run())
    return writes


def test_the_publisher_publishes_once(cluster):
    """With nothing but `patch`: what is there is found by a patch that etcd never sees."""
    report = DevicesReport(policy=TopologyManagerPolicy.RESTRICTED)
    assert len(published(cluster, "of the machine", report)) == 1
    version = cluster.version(OWN)
    assert len(published(cluster, "of the machine", report)) == 0
    assert cluster.version(OWN) == version
    assert len(published(cluster, "of the machine", DevicesReport())) == 1
    annotations = cluster.stored(OWN)["metadata"]["annotations"]
    assert annotations[names.TOPOLOGY] == "of the machine"
    assert decode_devices(annotations[names.DEVICES]).generation == 2
    with cluster.plugin(OWN) as plugin:
        assert is_let(cluster, plugin, OWN)


# What the plugin may not do to Nodes


def meta(**fields: Any) -> dict[str, Any]:
    """A patch of metadata, with a key that the plugin may write."""
    return {"metadata": {"annotations": {names.TOPOLOGY: "cover"}, **fields}}


def applied(name: str, **fields: Any) -> dict[str, Any]:
    """A server-side apply."""
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, **fields}}


def whole(name: str, change: Any) -> Any:
    """A function that makes the whole Node, changed; for PUT."""

    def body(cluster: Cluster) -> dict[str, Any]:
        found = copy.deepcopy(cluster.stored(name))
        change(found)
        return found

    return body


SELF = f"{NODES}/{OWN}"
LABEL_POINTER = "/metadata/labels/tier"
FORGED_ANNOTATION = {names.TOPOLOGY: "forged"}
FORGERIES = {
    # Other nodes.
    "another node's topology": ("PATCH", f"{NODES}/{OTHER}", MERGE, keys(topology="forged")),
    "another node's devices": ("PATCH", f"{NODES}/{OTHER}", MERGE, keys(devices=None)),
    "another node, applied": (
        *("PATCH", f"{NODES}/{OTHER}", APPLY),
        applied(OTHER, annotations=FORGED_ANNOTATION),
    ),
    "another node, replaced": (
        *("PUT", f"{NODES}/{OTHER}", JSON),
        whole(OTHER, lambda it: it["metadata"]["annotations"].update(FORGED_ANNOTATION)),
    ),
    "another node, nothing": ("PATCH", f"{NODES}/{OTHER}", MERGE, {}),
    # Other annotations of its own node.
    "an annotation of others": (
        *("PATCH", SELF, MERGE),
        meta(annotations={"example.com/a": "x", names.TOPOLOGY: "cover"}),
    ),
    "an annotation of the kubelet's": ("PATCH", SELF, MERGE, meta(annotations={ATTACH: "false"})),
    "an annotation removed": ("PATCH", SELF, MERGE, meta(annotations={ATTACH: None})),
    "all annotations removed": ("PATCH", SELF, MERGE, {"metadata": {"annotations": None}}),
    "a pod's key": ("PATCH", SELF, MERGE, meta(annotations={names.PLAN: "x"})),
    "a key like Coterie's": ("PATCH", SELF, MERGE, meta(annotations={"coterie.gpu/x": "x"})),
    # Labels, owners, finalizers.
    "a label": ("PATCH", SELF, MERGE, meta(labels={"a": "b"})),
    "a label changed": ("PATCH", SELF, STRATEGIC, meta(labels={"tier": "cpu"})),
    "a label removed": ("PATCH", SELF, MERGE, meta(labels={"tier": None})),
    "all labels removed": ("PATCH", SELF, MERGE, meta(labels=None)),
    "a label, by JSON patch": (
        *("PATCH", SELF, JSON_PATCH),
        [{"op": "replace", "path": LABEL_POINTER, "value": "cpu"}],
    ),
    "a label, applied": ("PATCH", SELF, APPLY, applied(OWN, labels={"tier": "cpu"})),
    "a label, replaced": (
        *("PUT", SELF, JSON),
        whole(OWN, lambda it: it["metadata"]["labels"].update(tier="cpu")),
    ),
    "a finalizer": ("PATCH", SELF, MERGE, meta(finalizers=["example.com/keep", "a.b/c"])),
    "a finalizer removed": ("PATCH", SELF, MERGE, meta(finalizers=None)),
    "an owner": ("PATCH", SELF, MERGE, meta(ownerReferences=[OWNER])),
    # Spec.
    "taints removed": ("PATCH", SELF, MERGE, {"spec": {"taints": None}}),
    "a taint removed": ("PATCH", SELF, STRATEGIC, {"spec": {"taints": []}}),
    "all of the spec replaced": ("PATCH", SELF, STRATEGIC, {"spec": {"$patch": "replace"}}),
    "a taint": ("PATCH", SELF, MERGE, {"spec": {"taints": [TAINT, TAINT | {"key": "x.org/y"}]}}),
    "cordoned": ("PATCH", SELF, MERGE, {"spec": {"unschedulable": True}}),
    "a provider's id": ("PATCH", SELF, MERGE, {"spec": {"providerID": "x://y"}}),
    "a pod CIDR": ("PATCH", SELF, MERGE, {"spec": {"podCIDR": "10.9.0.0/24"}}),
    "a taint beside the topology": (
        *("PATCH", SELF, MERGE),
        keys(topology="cover") | {"spec": {"taints": None}},
    ),
    # Status.
    "status": (
        *("PATCH", f"{SELF}/status", MERGE),
        {"status": {"capacity": {names.DEFAULT_RESOURCE: "99"}}},
    ),
    "keys through status": ("PATCH", f"{SELF}/status", MERGE, keys(topology="forged")),
    "annotations through status": (
        *("PATCH", f"{SELF}/status", STRATEGIC),
        meta(annotations={"a.b/c": "d"}),
    ),
    "status replaced": (
        *("PUT", f"{SELF}/status", JSON),
        whole(OWN, lambda it: it["metadata"]["annotations"].update(FORGED_ANNOTATION)),
    ),
    # Nodes that come and go.
    "a node created": ("POST", NODES, JSON, node("forged")),
    "a node created with keys": ("POST", NODES, JSON, node("forged", topology="forged")),
    "a node created without a name": (
        *("POST", NODES, JSON),
        {"metadata": {"generateName": "forged-", "annotations": FORGED_ANNOTATION}},
    ),
    "a node applied into being": ("PATCH", f"{NODES}/forged", APPLY, applied("forged")),
    "its own node deleted": ("DELETE", SELF, JSON, {}),
    "another node deleted": ("DELETE", f"{NODES}/{OTHER}", JSON, {}),
    "all nodes deleted": ("DELETE", NODES, JSON, {}),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_plugin_forges_nothing(cluster, plugin, forgery):
    """Whoever has taken a node over has its plugin's token."""
    method, path, content_type, body = FORGERIES[forgery]
    before = cluster.stored(OWN), cluster.stored(OTHER)
    body = body(cluster) if callable(body) else body
    answer = cluster.send(method, path, body, content_type=content_type, client=plugin)
    assert answer.status_code == BAD_RIGHTS, answer.text
    if cluster.is_wide:
        assert "ValidatingAdmissionPolicy" in answer.json()["message"]
    assert (cluster.stored(OWN), cluster.stored(OTHER)) == before
    assert {one["metadata"]["name"] for one in cluster.plane.client.get(NODES).json()["items"]} == {
        OWN,
        OTHER,
    }


def test_a_status_in_an_update_is_not_stored(cluster, plugin):
    """The API server drops it before admission: nothing is forged, so nothing is refused."""
    before = cluster.stored(OWN)
    body = keys(topology="genuine") | {"status": {"capacity": {names.DEFAULT_RESOURCE: "99"}}}
    assert cluster.send("PATCH", SELF, body, client=plugin).status_code == 200
    assert cluster.stored(OWN) == before


# Whose token counts


@pytest.mark.parametrize(
    ("on", "is_bound", "message"),
    [
        pytest.param(OTHER, True, "is of node node-1", id="of a pod on another node"),
        pytest.param(None, True, "is of no node", id="of a pod that is on none yet"),
        pytest.param(None, False, "is of no node", id="of no pod"),
    ],
)
@pytest.mark.parametrize("key", KEYS)
def test_only_the_token_of_the_nodes_own_pod_counts(cluster, on, is_bound, message, key):
    """Which node a pod is on stands in the token, signed."""
    before = cluster.stored(OWN)
    with cluster.plugin(on, is_bound=is_bound) as plugin:
        body = {"metadata": {"annotations": {key: "forged"}}}
        answer = cluster.send("PATCH", SELF, body, client=plugin)
        assert answer.status_code == BAD_RIGHTS, answer.text
        # Both policies refuse that, and the message is of either; this one the plugin's alone does.
        answer = cluster.send("PATCH", SELF, {}, client=plugin)
    assert answer.status_code == BAD_RIGHTS, answer.text
    assert message in answer.json()["message"]
    assert cluster.stored(OWN) == before


def test_the_keys_are_safe_without_the_other_policy(cluster, plugin):
    """Two policies: the one that limits the plugin's other rights may be switched off."""
    label = {"metadata": {"labels": {"tier": "cpu"}}}

    def may_label():
        answer = plugin.patch(
            SELF, content=json.dumps(label), headers={"Content-Type": MERGE}, params=DRY_RUN
        )
        return answer.is_success

    before = cluster.stored(OWN)
    cluster.plane.kubectl("delete", "validatingadmissionpolicybinding", "coterie-agent-rights")
    try:
        await_so(may_label, "policy switched off")
        for on, is_bound in ((OTHER, True), (None, True), (None, False)):
            with cluster.plugin(on, is_bound=is_bound) as other:
                answer = cluster.send("PATCH", SELF, keys(topology="forged"), client=other)
            assert answer.status_code == BAD_RIGHTS, answer.text
            assert "only the node plugin of this node" in answer.json()["message"]
        assert cluster.stored(OWN) == before
        assert is_let(cluster, plugin, OWN)
    finally:
        apply_manifest(cluster.plane, "second-scheduler")
        await_so(lambda: not may_label(), "policy switched on again")


def test_the_same_name_elsewhere_is_another_account(cluster):
    """A pod on the node with an account of that name, in a namespace of its owner's."""
    namespace = f"other-{next(cluster.serial)}"
    cluster.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    cluster.post(accounts, {"metadata": {"name": ACCOUNT}})
    cluster.plane.kubectl(
        *("create", "clusterrolebinding", namespace, "--clusterrole=cluster-admin"),
        f"--serviceaccount={namespace}:{ACCOUNT}",
    )
    with cluster.plugin(OWN, namespace=namespace) as stranger:
        label = {"metadata": {"labels": {"tier": "gpu"}}}
        await_so(lambda: cluster.send("PATCH", SELF, label, client=stranger).is_success, "rights")
        answer = cluster.send("PATCH", SELF, keys(topology="forged"), client=stranger)
    assert answer.status_code == BAD_RIGHTS
    assert (
        f"only the node plugin of this node may set, change or remove annotation {names.TOPOLOGY}"
        in (answer.json()["message"])
    )


# What others may not do


def replaced(cluster, key):
    """The whole Node with the key in it."""
    found = cluster.stored(OWN)
    found["metadata"]["annotations"][key] = "forged"
    return found


def patch(_cluster, key):
    """A merge patch that sets the key."""
    return {"metadata": {"annotations": {key: "forged"}}}


def removal(_cluster, key):
    """A merge patch that removes the key."""
    return {"metadata": {"annotations": {key: None}}}


def json_patch(_cluster, key):
    """A JSON patch that sets the key."""
    pointer = key.replace("/", "~1")
    return [{"op": "add", "path": f"/metadata/annotations/{pointer}", "value": "forged"}]


def apply(_cluster, key):
    """A server-side apply that owns the key."""
    return applied(OWN, annotations={key: "forged"})


WRITES = [
    pytest.param(method, sub, content_type, body, id=f"{body.__name__} {sub or 'node'} {kind}")
    for sub in ("", "/status")
    for method, kind, content_type, body in (
        ("PUT", "put", JSON, replaced),
        ("PATCH", "merge", MERGE, patch),
        ("PATCH", "merge", MERGE, removal),
        ("PATCH", "strategic", STRATEGIC, patch),
        ("PATCH", "json", JSON_PATCH, json_patch),
        ("PATCH", "apply", APPLY, apply),
    )
]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(("method", "sub", "content_type", "body"), WRITES)
def test_no_other_user_writes_a_nodes_keys(cluster, method, sub, content_type, body, key):
    """Not even who may do everything, by whatever verb and subresource."""
    before = cluster.stored(OWN)
    forged = body(cluster, key)
    answer = cluster.send(method, f"{SELF}{sub}", forged, content_type=content_type)
    assert answer.status_code == BAD_RIGHTS, answer.text
    assert (
        f"only the node plugin of this node may set, change or remove annotation {key}"
        in answer.text
    )
    assert cluster.stored(OWN) == before


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    "user", [("root", MASTERS), ("system:node:forged", "system:nodes")], ids=str
)
def test_nodes_cannot_be_born_forged(cluster, user, key):
    """A node's own kubelet makes its Node, and may not say what its GPUs are."""
    body = node("forged")
    body["metadata"]["annotations"][key] = "forged"
    answer = cluster.send("POST", NODES, body, content_type=JSON, user=user)
    assert answer.status_code == BAD_RIGHTS
    assert key in answer.json()["message"]


@pytest.mark.parametrize(
    "user",
    [
        (f"system:node:{OWN}", "system:nodes"),
        ("system:serviceaccount:coterie-system:coterie-extender", MASTERS),
        (f"system:serviceaccount:{NAMESPACE}:default", MASTERS),
        (f"system:serviceaccount:default:{ACCOUNT}", MASTERS),
        (f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}x", MASTERS),
        (ACCOUNT, MASTERS),
        ("system:serviceaccount:kube-system:node-controller", MASTERS),
    ],
    ids=lambda user: user[0],
)
def test_lookalikes_write_no_keys(cluster, user):
    """Other programs of the cluster, and names that look like the plugin's."""
    before = cluster.stored(OWN)
    for sub in ("", "/status"):
        answer = cluster.send(
            "PATCH", f"{SELF}{sub}", keys(devices="forged"), content_type=STRATEGIC, user=user
        )
        assert answer.status_code == BAD_RIGHTS, answer.text
    assert cluster.stored(OWN) == before


# Pods


def pod_forgeries(name: str, key: str) -> Iterator[tuple[str, str, str, object]]:
    """Every way to write a pod's annotations: method, path, content type, body."""
    path, annotations = f"{PODS}/{name}", {key: "forged"}
    for sub in ("", "/status", "/ephemeralcontainers", "/resize"):
        yield "PATCH", f"{path}{sub}", STRATEGIC, {"metadata": {"annotations": annotations}}
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "annotations": annotations},
        "target": {"apiVersion": "v1", "kind": "Node", "name": OWN},
    }
    yield "POST", f"{path}/binding", JSON, binding
    yield "POST", PODS.removesuffix("pods") + "bindings", JSON, binding
    yield "POST", PODS, JSON, pod(f"{name}-forged", annotations)


def pod(name: str, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """A pod without GPUs."""
    return {
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }


@pytest.mark.parametrize("key", [names.PLAN, names.ALLOCATED, names.RETRY])
def test_a_plugin_writes_nothing_on_pods(cluster, plugin, key):
    """A node that could forge a plan would take GPUs of its neighbours."""
    name = f"pod-{next(cluster.serial)}"
    cluster.post(PODS, pod(name))
    for method, path, content_type, body in pod_forgeries(name, key):
        answer = cluster.send(method, path, body, content_type=content_type, client=plugin)
        # An update of these two drops metadata before it is judged; nothing is stored.
        is_dropped = cluster.is_wide and path.endswith(("/ephemeralcontainers", "/resize"))
        assert answer.status_code == BAD_RIGHTS or is_dropped, (path, answer.text)
        stored = cluster.plane.client.get(f"{PODS}/{name}").json()["metadata"]
        assert stored.get("annotations", {}) == {}


# What others do all the time


def test_a_kubelets_heartbeat_passes(cluster):
    """Kubelets patch their Node's status every few seconds: they must never be stopped."""
    user = (f"system:node:{OWN}", "system:nodes")
    for second in range(3):
        at = f"2026-01-01T00:00:0{second}Z"
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "m"}
        ready |= {"lastHeartbeatTime": at, "lastTransitionTime": "2026-01-01T00:00:00Z"}
        order = [{"type": "Ready"}]
        body = {"status": {"$setElementOrder/conditions": order, "conditions": [ready]}}
        answer = cluster.send("PATCH", f"{SELF}/status", body, content_type=STRATEGIC, user=user)
        assert answer.status_code == 200, answer.text
        (condition,) = answer.json()["status"]["conditions"]
        assert condition["lastHeartbeatTime"] == at
    annotations = {"metadata": {"annotations": {ATTACH: "true"}}}
    answer = cluster.send("PATCH", f"{SELF}/status", annotations, content_type=STRATEGIC, user=user)
    assert answer.status_code == 200, answer.text
    stored = cluster.stored(OWN)
    assert stored["metadata"]["annotations"].items() >= GENUINE.items()
    del stored["status"]["conditions"]
    put = cluster.send("PUT", f"{SELF}/status", stored, content_type=JSON, user=user)
    assert put.status_code == 200, put.text


def test_nodes_come_and_go(cluster):
    """A kubelet registers, bare; controllers label, taint, cordon; an admin deletes."""
    name = f"young-{next(cluster.serial)}"
    path = f"{NODES}/{name}"
    kubelet = (f"system:node:{name}", "system:nodes")
    bare = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    made = cluster.send("POST", NODES, bare, content_type=JSON, user=kubelet)
    assert made.status_code == 201, made.text
    try:
        with cluster.plugin(name) as plugin:
            assert is_let(cluster, plugin, name)
        for sub, body in (
            ("", {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}}),
            ("", {"spec": {"taints": [TAINT], "unschedulable": True}}),
            ("/status", {"status": {"capacity": {"cpu": "1"}}}),
            ("", {"metadata": {"labels": None, "annotations": {"c": None}}}),
        ):
            answer = cluster.send("PATCH", path + sub, body)
            assert answer.status_code == 200, answer.text
        stored = cluster.stored(name)["metadata"]
        assert stored["annotations"].items() >= GENUINE.items()
    finally:
        gone = cluster.send("DELETE", path, {}, content_type=JSON, user=("root", MASTERS))
    assert gone.status_code == 200, gone.text


# Rights


def test_the_plugins_rights_are_these(cluster):
    """By the API server's own answer; a stolen token must not be worth more than its work."""
    user = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"

    def is_allowed(verb, resource, subresource="", **where):
        attributes = {"verb": verb, "resource": resource, "subresource": subresource, "name": OWN}
        attributes |= where
        answer = cluster.post(
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            {"spec": {"user": user, "resourceAttributes": attributes}},
        )
        return answer["status"]["allowed"]

    assert is_allowed("patch", "nodes")
    assert is_allowed("get", "nodes", "pods")
    assert is_allowed("get", "nodes", "configz")
    assert is_allowed("create", "events", namespace="default", name="")
    if cluster.is_wide:
        return
    for verb in ("get", "list", "watch", "create", "update", "delete", "deletecollection"):
        assert not is_allowed(verb, "nodes")
    for verb, resource, subresource in (
        *(("patch", "nodes", "status"), ("get", "nodes", "proxy"), ("create", "nodes", "proxy")),
        *(("get", "nodes", "log"), ("get", "nodes", "metrics"), ("create", "nodes", "pods")),
        *(("get", "pods", ""), ("list", "pods", ""), ("patch", "pods", ""), ("create", "pods", "")),
        *(("patch", "pods", "status"), ("create", "pods", "binding"), ("create", "bindings", "")),
        *(("create", "pods", "exec"), ("get", "secrets", ""), ("create", "events", "")),
        *(("create", "serviceaccounts", "token"), ("impersonate", "users", "")),
    ):
        assert not is_allowed(verb, resource, subresource), (verb, resource, subresource)


# Manifests


def test_policies_type_check(cluster):
    """The controller that checks every expression against the API's types must find nothing."""
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    manager = cluster.plane.start_controller_manager("validatingadmissionpolicy-status-controller")

    def type_checks():
        policies = cluster.plane.client.get(path).json()["items"]
        return {one["metadata"]["name"]: one["status"].get("typeChecking") for one in policies}

    try:
        await_so(lambda: None not in type_checks().values(), "type check")
        found = type_checks()
        assert {name: found[name] for name in ("coterie-agent-rights", "coterie-node-keys")} == {
            "coterie-agent-rights": {},
            "coterie-node-keys": {},
        }
    finally:
        manager.stop()


@pytest.mark.parametrize(
    "variant",
    [
        ("device-plugin",),
        ("simulated",),
        ("gpu-operator",),
        ("gpu-operator", "plugin.driverRoot=/"),
        ("device-plugin", "plugin.mode=reporter"),
        ("device-plugin", "plugin.clean=true"),
        ("device-plugin", "plugin.deviceListStrategy=cdi-cri"),
        ("device-plugin", "plugin.deviceListStrategy=volume-mounts"),
    ],
    ids=" ".join,
)
def test_each_way_of_running_it_is_taken(cluster, variant):
    """The API server takes the DaemonSet and the pods that come of it; each volume is mounted."""
    text = rendered(*variant)
    output = cluster.plane.kubectl("apply", "--dry-run=server", "-f", "-", stdin=text)
    assert "daemonset.apps/coterie-plugin" in output
    (daemonset,) = documents("plugin/daemonset", *variant)
    template = daemonset["spec"]["template"]
    template["metadata"]["name"] = "trial"
    spec = template["spec"]
    # An admission plugin wants the class to be there.
    spec.pop("runtimeClassName", None)
    answer = cluster.plane.client.post(
        f"/api/v1/namespaces/{NAMESPACE}/pods", json=template, params=DRY_RUN
    )
    assert answer.status_code == 201, answer.text
    containers = (*spec.get("initContainers", ()), *spec["containers"])
    used = {mount["name"] for one in containers for mount in one["volumeMounts"]}
    assert used == {one["name"] for one in spec["volumes"]}
