"""What the extender may do to pods, and no more: its credentials on a real API server.

Everything runs twice: with the chart's rights, and with an extender that may do everything by
RBAC, where the admission policy alone stands between a stolen token and every pod.
"""

from __future__ import annotations

import asyncio
import base64
import copy
import itertools
import json
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from kube.client import ApiServer, Binding, Transport
from kube.objects import ObjectKey
from tests.cluster.control.control_plane import MASTERS, ControlPlane
from tests.cluster.control.manifests import (
    NAMESPACE,
    Mode,
    await_so,
    extender_user,
    install,
    workload,
)
from topology.annotations import pod_keys
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.cluster

NODE = "node-0"
ZONE = "topology.kubernetes.io/zone"
PODS = "/api/v1/namespaces/default/pods"
JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
POLICY = "coterie-extender-rights"
IMAGE = {"spec": {"containers": [{"name": "main", "image": "forged"}]}}
OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}


@dataclass(frozen=True)
class Cluster:
    """A control plane with a mode's manifests and one node; `extender` is a kubeconfig."""

    plane: ControlPlane
    mode: Mode
    extender: Path
    is_wide: bool
    serial: Iterator[int]

    def pod(self) -> str:
        """Create a pending pod that uses each part of metadata; its path."""
        name = f"pod-{next(self.serial)}"
        pod = {
            "metadata": {
                "name": name,
                "labels": {"app": "x"},
                "annotations": {"example.com/a": "b", pod_keys.AFFINITY: "nvlink"},
                "finalizers": ["example.com/keep"],
            },
            "spec": {
                "containers": [
                    {"name": "main", "image": "none", "resources": {"requests": {"cpu": "2m"}}}
                ],
                "schedulingGates": [{"name": "example.com/wait"}],
            },
        }
        self.plane.client.post(PODS, json=pod).raise_for_status()
        return f"{PODS}/{name}"

    def stored(self, path: str) -> dict[str, Any]:
        """A pod as it is stored, without what every write touches."""
        found: dict[str, Any] = self.plane.client.get(path).json()
        for key in ("managedFields", "resourceVersion"):
            found["metadata"].pop(key, None)
        return found

    def send(
        self, method: str, path: str, body: object, *, content_type: str = MERGE
    ) -> httpx.Response:
        """One request as the extender; where it `is_wide`, with every right of RBAC."""
        headers = {"Content-Type": content_type, "Impersonate-User": extender_user(self.mode)}
        if self.is_wide:
            headers["Impersonate-Group"] = MASTERS
        query = {"fieldManager": "forger", "force": "true"} if content_type == APPLY else {}
        return self.plane.client.request(
            method, path, content=json.dumps(body), headers=headers, params=query
        )

    def call(self, *calls: Any) -> list[Any]:
        """Requests with the extender's own credentials, by the client that it uses."""

        async def run() -> list[Any]:
            transport = await Transport.connect(self.extender)
            try:
                return [await one(ApiServer(transport)) for one in calls]
            finally:
                await transport.close()

        return asyncio.run(run())


@pytest.fixture(
    scope="module",
    params=itertools.product((Mode.SECOND_SCHEDULER, Mode.KUBEADM), (False, True)),
    ids=lambda one: f"{one[0].value} {'every right' if one[1] else 'shipped'}",
)
def cluster(request, binaries, tmp_path_factory):
    """The manifests, applied with kubectl."""
    mode, is_wide = request.param
    room = {"cpu": "64", "memory": "1Ti", "pods": "110", names.DEFAULT_RESOURCE: "8"}
    node = {
        "metadata": {"name": NODE, "labels": {ZONE: "a"}},
        "status": {"capacity": room, "allocatable": room},
    }
    with ControlPlane(binaries, tmp_path_factory.mktemp("rights")) as plane:
        extender = install(plane, mode)
        plane.client.post("/api/v1/nodes", json=node).raise_for_status()
        yield Cluster(plane, mode, extender, is_wide, itertools.count())


def key_of(cluster: Cluster, path: str) -> ObjectKey:
    """The pod, for the extender's client."""
    metadata = cluster.plane.client.get(path).json()["metadata"]
    return ObjectKey("default", metadata["name"], metadata["uid"])


# What the extender does


def test_the_extender_writes_its_annotations(cluster):
    """Set, changed, removed, both at once; and everything else stays."""
    path = cluster.pod()
    before = cluster.stored(path)
    key = key_of(cluster, path)

    def write(**values: str | None) -> Any:
        keys = {names.PREFIX + name: value for name, value in values.items()}
        return lambda server: server.annotate_pod(key.namespace, key.name, key.uid, keys)

    cluster.call(write(retry="1"), write(retry="2", allocated="x"), write(allocated="y"))
    written = cluster.stored(path)["metadata"]["annotations"]
    assert (written[names.RETRY], written[names.ALLOCATED]) == ("2", "y")
    cluster.call(write(retry=None, allocated=None))
    assert cluster.stored(path) == before


def test_the_extender_binds_with_a_plan(cluster):
    """With the plan, as it does, and without one; the API server adds the node's zone itself."""
    for plan in ({names.PLAN: "genuine"}, {}):
        path = cluster.pod()
        cluster.plane.client.patch(
            path,
            content=json.dumps({"spec": {"schedulingGates": None}}),
            headers={"Content-Type": MERGE},
        ).raise_for_status()
        binding = Binding(key_of(cluster, path), "", NODE, plan)
        cluster.call(lambda server, one=binding: server.bind(one))
        pod = cluster.stored(path)
        assert pod["spec"]["nodeName"] == NODE
        assert pod["metadata"]["annotations"].get(names.PLAN) == plan.get(names.PLAN)
        assert pod["metadata"]["labels"][ZONE] == "a"


# What it may not do


def meta(**fields: Any) -> dict[str, Any]:
    """A patch of metadata, with a key that the extender may write."""
    return {"metadata": {"annotations": {names.RETRY: "cover"}, **fields}}


def binding(**metadata: Any) -> dict[str, Any]:
    """A Binding to the node, of the pod that the path names."""
    target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}


def whole(change: Any) -> Any:
    """A function that makes the whole pod, changed; for PUT."""

    def body(pod: dict[str, Any]) -> dict[str, Any]:
        found = copy.deepcopy(pod)
        change(found)
        return found

    return body


def applied(pod: dict[str, Any]) -> dict[str, Any]:
    """A server-side apply of an image."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod["metadata"]["name"]}} | (
        IMAGE
    )


IMAGE_POINTER = "/spec/containers/0/image"
NEW = {"metadata": {"name": "forged"}, "spec": {"containers": [{"name": "m", "image": "forged"}]}}
FORGERIES: dict[str, tuple[str, str, str, Any]] = {
    # Spec: code in any pod.
    "an image": ("PATCH", "", STRATEGIC, IMAGE),
    "an image, by JSON patch": (
        *("PATCH", "", JSON_PATCH),
        [{"op": "replace", "path": IMAGE_POINTER, "value": "forged"}],
    ),
    "an image, applied": ("PATCH", "", APPLY, applied),
    "an image, replaced": (
        *("PUT", "", JSON),
        whole(lambda it: it["spec"]["containers"][0].update(image="forged")),
    ),
    "an image beside the retry": ("PATCH", "", STRATEGIC, meta() | IMAGE),
    "a toleration": (
        *("PATCH", "", JSON_PATCH),
        [{"op": "add", "path": "/spec/tolerations/-", "value": {"operator": "Exists"}}],
    ),
    "a gate removed": ("PATCH", "", MERGE, {"spec": {"schedulingGates": None}}),
    "a deadline": ("PATCH", "", MERGE, {"spec": {"activeDeadlineSeconds": 1}}),
    "a debugging container": (
        *("PATCH", "/ephemeralcontainers", STRATEGIC),
        {"spec": {"ephemeralContainers": [{"name": "forged", "image": "forged"}]}},
    ),
    "a resize": (
        *("PATCH", "/resize", STRATEGIC),
        {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1m"}}}]}},
    ),
    # Metadata.
    "an annotation of others": ("PATCH", "", MERGE, meta(annotations={"example.com/a": "forged"})),
    "an annotation removed": ("PATCH", "", MERGE, meta(annotations={"example.com/a": None})),
    "all annotations removed": ("PATCH", "", MERGE, {"metadata": {"annotations": None}}),
    "the user's key": ("PATCH", "", MERGE, meta(annotations={pod_keys.AFFINITY: "none"})),
    "a plan without a binding": ("PATCH", "", MERGE, meta(annotations={names.PLAN: "forged"})),
    "a label": ("PATCH", "", MERGE, meta(labels={"app": "forged"})),
    "a label removed": ("PATCH", "", MERGE, meta(labels=None)),
    "a finalizer": ("PATCH", "", MERGE, meta(finalizers=["example.com/keep", "a.b/c"])),
    "a finalizer removed": ("PATCH", "", MERGE, meta(finalizers=None)),
    "an owner": ("PATCH", "", MERGE, meta(ownerReferences=[OWNER])),
    # Status.
    "a status": ("PATCH", "/status", STRATEGIC, {"status": {"phase": "Failed"}}),
    "the retry through status": ("PATCH", "/status", MERGE, meta()),
    # Bindings.
    "a binding with an annotation": (
        *("POST", "/binding", JSON),
        binding(annotations={names.PLAN: "x", "example.com/a": "forged"}),
    ),
    "a binding with the retry": ("POST", "/binding", JSON, binding(annotations={names.RETRY: "x"})),
    "a binding with a label": ("POST", "/binding", JSON, binding(labels={"app": "forged"})),
    # Pods that come and go, and programs in them.
    "a pod created": ("POST", "..", JSON, NEW),
    "a pod deleted": ("DELETE", "", JSON, {}),
    "all pods deleted": ("DELETE", "..", JSON, {}),
    "a pod evicted": (
        *("POST", "/eviction", JSON),
        whole(
            lambda it: (
                it.update(apiVersion="policy/v1", kind="Eviction"),
                it.pop("spec"),
                it.pop("status"),
            )
        ),
    ),
    "a program run": ("POST", "/exec?command=id&stdout=true", JSON, {}),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_the_extender_forges_nothing(cluster, forgery):
    """Whoever has stolen its token gets two annotations, and plans at the time of a binding."""
    method, sub, content_type, body = FORGERIES[forgery]
    path = cluster.pod()
    before = cluster.stored(path)
    where = PODS if sub == ".." else path + sub
    sent: Any = body(before) if callable(body) else copy.deepcopy(body)
    if sub == "/binding":
        sent["metadata"]["name"] = before["metadata"]["name"]
    answer = cluster.send(method, where, sent, content_type=content_type)
    assert answer.status_code == httpx.codes.FORBIDDEN, answer.text
    if cluster.is_wide:
        assert POLICY in answer.json()["message"]
    assert cluster.stored(path) == before


@pytest.mark.parametrize("metadata", [{}, {"annotations": {names.PLAN: "forged"}}])
def test_the_older_form_of_a_binding_is_not_for_the_extender(cluster, metadata):
    """It has one way to bind."""
    path = cluster.pod()
    before = cluster.stored(path)
    name = before["metadata"]["name"]
    where = PODS.removesuffix("pods") + "bindings"
    answer = cluster.send("POST", where, binding(name=name, **metadata), content_type=JSON)
    assert answer.status_code == httpx.codes.FORBIDDEN, answer.text
    assert cluster.stored(path) == before


# Whose credential is where


def test_each_container_of_the_second_scheduler_has_its_own_account(binaries, tmp_path):
    """The token that kube-controller-manager writes is the extender's, on a real API server."""
    spec = workload("scheduler/deployment")["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    sources = {one["name"]: one for one in spec["volumes"]}
    mounted = {
        container["name"]: [
            sources[mount["name"]]
            for mount in container["volumeMounts"]
            if mount["mountPath"] == "/var/run/secrets/kubernetes.io/serviceaccount"
        ]
        for container in spec["containers"]
    }
    (schedulers,), (extenders,) = mounted["kube-scheduler"], mounted["extender"]
    assert "serviceAccountToken" in schedulers["projected"]["sources"][0]
    assert spec["serviceAccountName"] == "coterie-scheduler"
    secret = f"/api/v1/namespaces/{NAMESPACE}/secrets/{extenders['secret']['secretName']}"
    with ControlPlane(binaries, tmp_path) as plane:
        install(plane, Mode.SECOND_SCHEDULER)
        plane.start_controller_manager("serviceaccount-token-controller")
        keys = {one["key"] for one in extenders["secret"]["items"]}
        await_so(
            lambda: set(plane.client.get(secret).json().get("data", {})) >= keys, "token written"
        )
        data = plane.client.get(secret).json()["data"]
        context = ssl.create_default_context(cadata=base64.b64decode(data["ca.crt"]).decode())
        token = base64.b64decode(data["token"]).decode()
        answer = httpx.post(
            f"{plane.url}/apis/authentication.k8s.io/v1/selfsubjectreviews",
            json={"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
            headers={"Authorization": f"Bearer {token}"},
            verify=context,
            trust_env=False,
            timeout=60,
        )
        assert answer.is_success, answer.text
        user = answer.json()["status"]["userInfo"]["username"]
        assert user == extender_user(Mode.SECOND_SCHEDULER)
