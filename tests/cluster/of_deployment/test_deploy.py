"""The manifests on a real API server and a real kube-scheduler: applied, enforced, sufficient."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from kube.client import ApiServer, Binding, ObjectEvent, Transport
from kube.objects import TEMPLATES, ObjectKey
from tests.cluster.control.control_plane import MASTERS, ControlPlane
from tests.cluster.control.credentials import Authority
from tests.cluster.control.manifests import (
    DEPLOY,
    NAMESPACE,
    ClientFiles,
    Mode,
    await_so,
    extender_user,
    install,
    objects,
    rendered,
    scheduler_config,
    send_gpu_pods,
)
from topology.annotations import parse_group, parse_policy, pod_keys
from topology.errors import PolicyError
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

pytestmark = pytest.mark.cluster

PODS = "/api/v1/namespaces/default/pods"
NODE = "node-0"
OWN_KEYS = (names.PLAN, names.ALLOCATED, names.RETRY)
DRY_RUN = {"dryRun": "All"}
JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
KUBEADM_POD = Path(__file__).parents[1] / "kubeadm" / "kube-scheduler.yaml"


@dataclass(frozen=True)
class Installed:
    """A control plane on which one mode's manifests are applied; `extender` is its kubeconfig."""

    plane: ControlPlane
    mode: Mode
    extender: Path
    serial: Iterator[int]

    def send(
        self,
        method: str,
        path: str,
        body: object,
        *,
        content_type: str = JSON,
        user: tuple[str, ...] = ("root", MASTERS),
        **query: str,
    ) -> httpx.Response:
        """One request as a user and its groups (as `kubectl --as` does)."""
        name, *groups = user
        headers = [("Content-Type", content_type), ("Impersonate-User", name)]
        headers += [("Impersonate-Group", group) for group in groups]
        return self.plane.client.request(
            method, path, content=json.dumps(body), headers=headers, params=query
        )

    def pod(self, **annotations: str) -> str:
        """Create a pod of one container without GPUs; its path. Keys are those of Coterie."""
        name = f"pod-{next(self.serial)}"
        keys = {names.PREFIX + key: value for key, value in annotations.items()}
        answer = self.send("POST", PODS, manifest(name, keys))
        assert answer.status_code == 201, answer.text
        return f"{PODS}/{name}"

    def bind(self, path: str) -> None:
        """Bind a pod to the one node, as a scheduler without Coterie does."""
        answer = self.send("POST", f"{path}/binding", binding(path))
        assert answer.status_code == 201, answer.text

    def annotations(self, path: str) -> dict[str, str]:
        """The annotations of a pod as they are stored."""
        stored: dict[str, str] = (
            self.plane.client.get(path).json()["metadata"].get("annotations", {})
        )
        return stored


def manifest(name: str, annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A pod; `spec` replaces or adds fields of its spec."""
    container = {"name": "main", "image": "none"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {"containers": [container]} | spec,
    }


def binding(path: str, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """The binding of a pod to the one node."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": path.rsplit("/", 1)[1], "annotations": annotations or {}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
    }


def container(**resources: Any) -> dict[str, Any]:
    """A container with these resources."""
    return {"name": "gpu", "image": "none", "resources": resources}


@pytest.fixture(scope="module", params=Mode, ids=lambda mode: mode.value)
def installed(request, binaries, tmp_path_factory):
    """Each mode's manifests, applied with kubectl to a control plane of their own."""
    room = {"cpu": "64", "memory": "1Ti", "pods": "110", names.DEFAULT_RESOURCE: "8"}
    node = {"metadata": {"name": NODE}, "status": {"capacity": room, "allocatable": room}}
    with ControlPlane(binaries, tmp_path_factory.mktemp("deploy")) as plane:
        extender = install(plane, request.param)
        send_gpu_pods(plane)
        plane.client.post("/api/v1/nodes", json=node).raise_for_status()
        yield Installed(plane, request.param, extender, itertools.count())


# What is applied


def test_applying_again_changes_nothing(installed):
    """Who applies twice, or after an upgrade, must see no conflicts."""
    text = rendered(installed.mode.value, "plugin.enabled=false")

    def versions():
        found = installed.plane.kubectl("get", "-f", "-", "-o", "json", stdin=text)
        applied = json.loads(found)
        return {
            f"{one['kind']} {one['metadata']['name']}": one["metadata"]["resourceVersion"]
            for one in applied["items"]
        }

    before = versions()
    installed.plane.kubectl("apply", "-f", "-", stdin=text)
    assert versions() == before


def test_pods_pass_pod_security(installed):
    """The namespace enforces `restricted`: a pod that falls short would never be made."""
    if installed.mode is Mode.KUBEADM:
        return  # its pods are the host's
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    for one in objects(installed.mode.value, "plugin.enabled=false"):
        if one["kind"] == "Deployment":
            template = one["spec"]["template"]
            template["metadata"]["name"] = "trial"
            answer = installed.send("POST", pods, template, **DRY_RUN)
            assert answer.status_code == 201, answer.text
            assert answer.json()["spec"]["schedulerName"] == "default-scheduler"
    refused = installed.send("POST", pods, manifest("trial", hostNetwork=True), **DRY_RUN)
    assert refused.status_code == 403


def test_policies_type_check(installed):
    """The controller that checks every expression against the API's types must find nothing."""
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    manager = installed.plane.start_controller_manager(
        "validatingadmissionpolicy-status-controller"
    )

    def type_checks():
        policies = installed.plane.client.get(path).json()["items"]
        return {one["metadata"]["name"]: one["status"].get("typeChecking") for one in policies}

    try:
        await_so(lambda: None not in type_checks().values(), "type check")
        names_ = ("coterie-extender-rights", "coterie-own-keys", "coterie-user-keys")
        assert type_checks() == {name: {} for name in names_}
    finally:
        manager.stop()


# The user guide's examples


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_examples_are_admitted(installed, file):
    """Objects of Kubernetes' own kinds are applied; of all, the pods that come of them."""
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    if content["kind"] in {"Pod", *TEMPLATES}:
        installed.plane.kubectl("apply", "-f", str(file))
        installed.plane.kubectl("delete", "-f", str(file))
    pods = list(pods_of(content))
    assert pods
    for one in pods:
        metadata = {"name": "example", **one.get("metadata", {})}
        pod = {"apiVersion": "v1", "kind": "Pod", **one, "metadata": metadata}
        answer = installed.send("POST", PODS, pod, **DRY_RUN)
        assert answer.status_code == 201, answer.text
        keys = answer.json()["metadata"].get("annotations", {})
        assert keys == metadata.get("annotations", {})


def pods_of(value: Any) -> Iterator[dict[str, Any]]:
    """Each pod template anywhere in a manifest, and a pod itself."""
    if isinstance(value, dict):
        if "containers" in value.get("spec", {}):
            yield {key: value[key] for key in ("metadata", "spec") if key in value}
        else:
            for one in value.values():
                yield from pods_of(one)
    elif isinstance(value, list):
        for one in value:
            yield from pods_of(one)


# Coterie's own keys


def replaced(installed, path, key):
    """The whole pod with the key in it, as `kubectl replace` sends it."""
    pod = installed.plane.client.get(path).json()
    pod["metadata"].setdefault("annotations", {})[key] = "forged"
    pod["metadata"].pop("managedFields", None)
    return pod


def patch(_installed, _path, key):
    """A merge patch that sets the key."""
    return {"metadata": {"annotations": {key: "forged"}}}


def removal(_installed, _path, key):
    """A merge patch that removes the key."""
    return {"metadata": {"annotations": {key: None}}}


def json_patch(_installed, _path, key):
    """A JSON patch that sets the key."""
    pointer = key.replace("/", "~1")
    return [{"op": "add", "path": f"/metadata/annotations/{pointer}", "value": "forged"}]


def applied(_installed, path, key):
    """A server-side apply that owns the key."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": path.rsplit("/", 1)[1], "annotations": {key: "forged"}},
    }


FORGERIES = [
    pytest.param(method, sub, content_type, body, id=f"{body.__name__} {sub or 'pod'} {kind}")
    for sub in ("", "/status", "/ephemeralcontainers", "/resize")
    for method, kind, content_type, body in (
        ("PUT", "put", JSON, replaced),
        ("PATCH", "merge", MERGE, patch),
        ("PATCH", "merge", MERGE, removal),
        ("PATCH", "strategic", STRATEGIC, patch),
        ("PATCH", "json", JSON_PATCH, json_patch),
        ("PATCH", "apply", APPLY, applied),
    )
]
DROPPED = ("/ephemeralcontainers", "/resize")
"""Subresources whose update drops metadata before admission: nothing is stored either way."""


@pytest.mark.parametrize("key", OWN_KEYS)
@pytest.mark.parametrize(("method", "sub", "content_type", "body"), FORGERIES)
def test_updates_cannot_forge(installed, method, sub, content_type, body, key):
    """Not even who may do everything writes Coterie's keys, by whatever verb and subresource."""
    path = installed.pod()
    written = dict.fromkeys(OWN_KEYS, "genuine")
    set_by_extender(installed, path, written)
    query = {"fieldManager": "forger", "force": "true"} if content_type == APPLY else {}
    forged = body(installed, path, key)
    answer = installed.send(method, path + sub, forged, content_type=content_type, **query)
    assert answer.status_code == 403 or sub in DROPPED, answer.text
    if answer.status_code == 403:
        assert f"only Coterie may set, change or remove annotation {key}" in answer.text
    assert installed.annotations(path) == written


@pytest.mark.parametrize("key", OWN_KEYS)
def test_pods_cannot_be_born_forged(installed, key):
    """A plan in a pod template would be a plan in every pod of a Deployment."""
    answer = installed.send("POST", PODS, manifest("forged", {key: "forged"}))
    assert answer.status_code == 403
    assert key in answer.json()["message"]


@pytest.mark.parametrize("key", OWN_KEYS)
@pytest.mark.parametrize("legacy", [False, True], ids=["pods/binding", "bindings"])
def test_bindings_cannot_forge(installed, legacy, key):
    """The API server merges a binding's annotations into the pod, whoever binds."""
    path = installed.pod()
    door = PODS.removesuffix("pods") + "bindings" if legacy else f"{path}/binding"
    answer = installed.send("POST", door, binding(path, {key: "forged"}))
    assert answer.status_code == 403
    assert key in answer.json()["message"]
    assert installed.annotations(path) == {}


@pytest.mark.parametrize(
    "user",
    [
        ("system:kube-scheduler",),
        ("system:serviceaccount:kube-system:replicaset-controller", "system:serviceaccounts"),
        (f"system:serviceaccount:{NAMESPACE}:default", MASTERS),
        ("system:serviceaccount:default:coterie-extender", MASTERS),
        ("Coterie-Extender", MASTERS),
        (f"system:node:{NODE}", "system:nodes"),
    ],
    ids=lambda user: user[0],
)
def test_lookalikes_cannot_forge(installed, user):
    """Other users of the control plane, and names that look like the extender's."""
    path = installed.pod()
    installed.bind(path)
    status = {"metadata": {"annotations": {names.PLAN: "forged"}}, "status": {"message": "x"}}
    answer = installed.send("PATCH", f"{path}/status", status, content_type=STRATEGIC, user=user)
    assert answer.status_code == 403
    assert installed.annotations(path) == {}


def set_by_extender(installed, path, annotations):
    """Write annotations with the extender's own credentials: the plan by binding the pod."""
    namespace, _, name = path.removeprefix("/api/v1/namespaces/").partition("/pods/")
    key = ObjectKey(namespace, name, installed.plane.client.get(path).json()["metadata"]["uid"])
    others = dict(annotations)
    plan = {names.PLAN: others.pop(names.PLAN)}
    call(
        installed.extender,
        lambda server: server.bind(Binding(key, "", NODE, plan)),
        lambda server: server.annotate_pod(namespace, name, key.uid, others),
    )


def call(kubeconfig, *calls):
    """Make requests as the user of a kubeconfig, through the door that the extender uses."""

    async def run():
        transport = await Transport.connect(kubeconfig)
        try:
            return [await one(ApiServer(transport)) for one in calls]
        finally:
            await transport.close()

    return asyncio.run(run())


def test_a_kubelets_status_passes(installed):
    """Kubelets patch the status of pods with plans all the time: they must never be stopped."""
    path = installed.pod()
    set_by_extender(installed, path, {names.PLAN: "genuine"})
    running = {
        "metadata": {"uid": installed.plane.client.get(path).json()["metadata"]["uid"]},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [
                {
                    "name": "main",
                    "image": "none",
                    "imageID": "",
                    "ready": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
                }
            ],
        },
    }
    user = (f"system:node:{NODE}", "system:nodes")
    answer = installed.send("PATCH", f"{path}/status", running, content_type=STRATEGIC, user=user)
    assert answer.status_code == 200, answer.text
    assert answer.json()["status"]["phase"] == "Running"
    assert installed.annotations(path) == {names.PLAN: "genuine"}


def test_what_others_do_to_planned_pods_passes(installed):
    """Labels, other annotations, conditions, debugging, deletion: none of our business."""
    path = installed.pod(affinity="nvlink")
    set_by_extender(installed, path, {names.PLAN: "genuine"})
    ephemeral = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "none"}]}}
    condition = {"status": {"conditions": [{"type": "Own", "status": "True"}]}}
    labels = {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}}
    for sub, body, user in (
        ("", labels, ("root", MASTERS)),
        ("/ephemeralcontainers", ephemeral, ("root", MASTERS)),
        ("/status", condition, ("system:kube-scheduler",)),
    ):
        answer = installed.send("PATCH", path + sub, body, content_type=STRATEGIC, user=user)
        assert answer.status_code == 200, answer.text
    kept = {names.PLAN: "genuine", pod_keys.AFFINITY: "nvlink", "c": "d"}
    assert installed.annotations(path) == kept
    options = {"gracePeriodSeconds": 0}
    assert installed.send("DELETE", path, options).status_code == 200


# Values of the user's keys


VALUES = [
    *(
        (pod_keys.AFFINITY, value)
        for value in ("nvlink", "pcie-switch", "numa", "none", "any", "NVLink")
    ),
    *((pod_keys.POLICY, value) for value in ("preferred", "required", "", "Required")),
    *((pod_keys.PREFER, value) for value in ("balanced", "fastest", "slowest")),
    *((pod_keys.NIC, value) for value in ("preferred", "required", "unset")),
    *(
        (pod_keys.MIN_BANDWIDTH, value)
        for value in (
            *("40", "37.5", "007", "0.000000001", "999999999.999999999"),
            *("0", "0.0", "000.000", "", "-1", "+40", "1e3", "0x10", "nan", "inf", "1_0"),
            *(" 40", "40 ", "40\n", "40\n1", ".5", "5.", "1.2.3", "1,5", "٤٠", "40 GB/s"),
            *("1000000000", "1.0000000000"),
        )
    ),
    (names.PREFIX + "afinity", "nvlink"),
    (names.PREFIX, "x"),
    ("example.com/affinity", "anything"),
]


@pytest.mark.parametrize(("key", "value"), VALUES, ids=repr)
def test_values_are_judged_as_the_extender_does(installed, key, value):
    """What passes at creation is what filter understands, and nothing else."""
    try:
        parse_policy({key: value})
    except PolicyError:
        is_meant = False
    else:
        is_meant = True
    answer = installed.send("POST", PODS, manifest("trial", {key: value}), **DRY_RUN)
    if key == names.PREFIX:  # the API server itself knows that this is no key
        assert answer.status_code == 422
        return
    assert answer.status_code == (201 if is_meant else 422), answer.text
    assert is_meant or f"annotation {key} is" in answer.json()["message"]


GROUPS: list[dict[str, str]] = [
    {pod_keys.GROUP: "train.7"},
    {pod_keys.GROUP: "Train"},
    {pod_keys.GROUP: "a" * 63},
    {pod_keys.GROUP: "a" * 64},
    *({pod_keys.GROUP: one} for one in ("train-", "", "anything at all", "g\n")),
    *({pod_keys.GROUP: "g", pod_keys.GROUP_SIZE: one} for one in ("1", "9999", "0", "10000", "x")),
    *({pod_keys.GROUP: "g", pod_keys.GROUP_DOMAIN: one} for one in ("any", "leaf", "", "Leaf")),
    *({pod_keys.GROUP: "g", pod_keys.GROUP_POLICY: one} for one in ("required", "must")),
    {pod_keys.GROUP_SIZE: "4"},
    {pod_keys.GROUP_DOMAIN: "leaf"},
    {pod_keys.GROUP_POLICY: "required"},
]


@pytest.mark.parametrize("annotations", GROUPS, ids=repr)
def test_groups_are_judged_as_the_extender_does(installed, annotations):
    """A size, domain or policy without a group would be ignored in silence."""
    try:
        parse_group(annotations)
    except PolicyError:
        is_meant = False
    else:
        is_meant = True
    answer = installed.send("POST", PODS, manifest("trial", annotations), **DRY_RUN)
    assert answer.status_code == (201 if is_meant else 422), answer.text
    (wrong, *_) = sorted(annotations, key=len, reverse=True)
    assert is_meant or f"annotation {wrong} is" in answer.json()["message"]


def test_a_refusal_names_each_value_and_what_was_expected(installed):
    """The user corrects everything at once, from the message alone."""
    wrong = {pod_keys.POLICY: "must", pod_keys.NIC: "yes"}
    message = installed.send("POST", PODS, manifest("trial", wrong)).json()["message"]
    assert "annotation coterie.gpu/policy is not one of: preferred, required" in message
    assert "annotation coterie.gpu/nic is not one of: preferred, required" in message


# The scheduler's name


TWO = {names.DEFAULT_RESOURCE: "2"}
PLAIN = {"name": "plain", "image": "none"}


@pytest.mark.parametrize(
    ("spec", "scheduler"),
    [
        pytest.param({"containers": [container(limits=TWO)]}, "coterie-scheduler", id="limits"),
        pytest.param(
            {"containers": [container(limits=TWO, requests=TWO)]},
            "coterie-scheduler",
            id="limits and requests",
        ),
        pytest.param(
            {"containers": [PLAIN, container(limits=TWO)]}, "coterie-scheduler", id="second"
        ),
        pytest.param(
            {"containers": [PLAIN], "initContainers": [container(limits=TWO)]},
            "coterie-scheduler",
            id="init container",
        ),
        pytest.param(
            {"containers": [container(limits=TWO)], "schedulerName": "default-scheduler"},
            "coterie-scheduler",
            id="the default, spelled out",
        ),
        pytest.param(
            {"containers": [container(limits=TWO)], "schedulerName": "volcano"},
            "volcano",
            id="another scheduler",
        ),
        pytest.param(
            {"containers": [container(limits=TWO)], "nodeName": NODE},
            "default-scheduler",
            id="a node already",
        ),
        pytest.param({"containers": [PLAIN]}, "default-scheduler", id="no GPU"),
        pytest.param(
            {"containers": [container(limits={"cpu": "1", "example.com/gpu": "1"})]},
            "default-scheduler",
            id="another resource",
        ),
    ],
)
def test_gpu_pods_are_sent_to_coterie(installed, spec, scheduler):
    """Every pod that the extender must see, and no other."""
    answer = installed.send("POST", PODS, manifest("trial", **spec), **DRY_RUN)
    assert answer.status_code == 201, answer.text
    assert answer.json()["spec"]["schedulerName"] == scheduler


# What the extender may do


def test_the_extender_may_do_what_it_does(installed):
    """Its every request, with its own credentials, on an API server that enforces RBAC."""
    path = installed.pod()
    pod = installed.plane.client.get(path).json()["metadata"]
    key = ObjectKey("default", pod["name"], pod["uid"])
    now = datetime.now(UTC)
    event = ObjectEvent(
        about=key,
        is_warning=False,
        reason="Trial",
        message="a trial",
        at=now,
        component="coterie",
        instance="test",
        key="4f",
    )
    call(
        installed.extender,
        lambda server: server.get_allocatable(NODE),
        lambda server: server.list_pdbs(),
        lambda server: server.get_pod("default", pod["name"]),
        lambda server: server.bind(
            Binding(key, pod["resourceVersion"], NODE, {names.PLAN: "genuine"})
        ),
        lambda server: server.list_pods_on(NODE),
        lambda server: server.annotate_pod("default", pod["name"], pod["uid"], {names.RETRY: "1"}),
        lambda server: server.create_event(event),
    )
    assert installed.annotations(path) == {names.PLAN: "genuine", names.RETRY: "1"}


@pytest.mark.parametrize(
    ("verb", "group", "resource", "subresource"),
    [
        ("get", "", "secrets", ""),
        ("patch", "", "nodes", ""),
        ("update", "", "nodes", "status"),
        ("create", "", "pods", ""),
        ("update", "", "pods", ""),
        ("create", "", "pods", "exec"),
        ("delete", "", "events", ""),
        ("impersonate", "", "users", ""),
        ("create", "", "serviceaccounts", "token"),
        ("escalate", "rbac.authorization.k8s.io", "clusterroles", ""),
        ("update", "admissionregistration.k8s.io", "validatingadmissionpolicies", ""),
        ("delete", "", "pods", ""),
        ("update", "", "pods", "status"),
        ("create", "coordination.k8s.io", "leases", ""),
    ],
    ids=str,
)
def test_the_extender_may_do_no_more(installed, verb, group, resource, subresource):
    """A stolen token must not be worth more than the work of who has it."""
    user = extender_user(installed.mode)
    attributes = {"verb": verb, "group": group, "resource": resource, "subresource": subresource}
    answer = installed.plane.client.post(
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        json={"spec": {"user": user, "resourceAttributes": attributes}},
    )
    assert answer.json()["status"]["allowed"] is False


# What the scheduler makes of it


@pytest.fixture(scope="module")
def client_files(tmp_path_factory):
    """Certificates for a scheduler that calls over TLS."""
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority("extender")
    ca = folder / "ca.crt"
    ca.write_bytes(authority.certificate)
    files = authority.client("kube-scheduler").write(folder, "client")
    return ClientFiles(ca, files.certificate, files.key)


def test_a_dead_extender_holds_up_gpu_pods_only(installed, client_files):
    """With the rights of its manifests kube-scheduler leads, and places pods without GPUs."""
    plane, mode = installed.plane, installed.mode
    user = {
        Mode.KUBEADM: lambda: plane.kubeconfig("system:kube-scheduler"),
        Mode.SECOND_SCHEDULER: lambda: plane.service_account(NAMESPACE, "coterie-scheduler"),
        Mode.SERVICE: lambda: plane.service_account(NAMESPACE, "coterie-scheduler"),
    }[mode]()
    is_plain = mode is Mode.SECOND_SCHEDULER
    config = scheduler_config(
        mode,
        f"{'http' if is_plain else 'https'}://127.0.0.1:9",
        kubeconfig=user,
        client_files=None if is_plain else client_files,
    )
    own = ("--authentication-kubeconfig", str(user), "--authorization-kubeconfig", str(user))
    scheduler = plane.start_scheduler(config, flags=("--leader-elect=true", *own))
    try:
        for name, containers in (("waits", [container(limits=TWO)]), ("goes", [PLAIN])):
            pod = manifest(name, containers=containers, schedulerName="coterie-scheduler")
            assert installed.send("POST", PODS, pod).status_code == 201

        def status(name: str) -> str:
            conditions = plane.client.get(f"{PODS}/{name}").json()["status"].get("conditions", [])
            return " ".join(f"{one['status']} {one.get('reason')}" for one in conditions)

        await_so(lambda: status("goes").startswith("True"), "pod without GPUs")
        await_so(lambda: status("waits") == "False SchedulerError", "pod with GPUs")
        log = scheduler.log.read_text(encoding="utf-8")
        assert "forbidden" not in log.lower()
    finally:
        scheduler.stop()


def test_kubeadms_pod_takes_the_patches(installed, tmp_path):
    """The static pod of a kubeadm control plane with all patches is a pod the API server takes."""
    whole = KUBEADM_POD
    for kind, file in (
        ("json", "patches/kube-scheduler0+json"),
        ("strategic", "patches/kube-scheduler1+strategic"),
        ("strategic", "patches-leader-health/kube-scheduler2+strategic"),
    ):
        patched = installed.plane.kubectl(
            *("patch", "--local", "-o", "yaml", "-f", str(whole), "--type", kind),
            *("--patch-file", str(DEPLOY / "kubeadm" / f"{file}.yaml")),
        )
        whole = tmp_path / f"{file.rpartition('/')[2]}.yaml"
        whole.write_text(patched, encoding="utf-8")
    pod = yaml.safe_load(whole.read_text(encoding="utf-8"))
    del pod["status"]
    answer = installed.send("POST", "/api/v1/namespaces/kube-system/pods", pod, **DRY_RUN)
    assert answer.status_code == 201, answer.text
    scheduler, extender = answer.json()["spec"]["containers"]
    assert scheduler["command"][-1] == "--config=/etc/kubernetes/coterie/scheduler-config.yaml"
    assert "--leader-elect=true" in scheduler["command"]
    assert {one["mountPath"] for one in scheduler["volumeMounts"]} == {
        "/etc/kubernetes/coterie/scheduler-config.yaml",
        "/etc/kubernetes/coterie/scheduler-tls",
        "/etc/kubernetes/scheduler.conf",
    }
    assert extender["name"] == "coterie-extender"
    assert scheduler["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert scheduler["startupProbe"]["httpGet"]["scheme"] == "HTTPS"


@pytest.fixture
def read_config(binaries, tmp_path):
    """What kube-scheduler makes of a configuration, or why it refuses it."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
                "contexts": [{"name": "c", "context": {"cluster": "c"}}],
                "current-context": "c",
            }
        )
    )
    config, read = tmp_path / "config.yaml", tmp_path / "read.yaml"

    def run(content: dict[str, Any]) -> Any:
        connection = content.setdefault("clientConnection", {})
        connection["kubeconfig"] = str(kubeconfig)
        config.write_text(json.dumps(content))
        done = subprocess.run(
            [
                *(binaries.kube_scheduler, "--config", config, "--write-config-to", read),
                *("--leader-elect=false", "--secure-port=0"),
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return yaml.safe_load(read.read_text()) if done.returncode == 0 else done.stderr

    return run


@pytest.mark.parametrize("mode", Mode, ids=lambda mode: mode.value)
def test_kube_scheduler_reads_each_configuration(read_config, mode, client_files):
    """Strict decoding and validation by kube-scheduler itself: no field is misspelt."""
    files = None if mode is Mode.SECOND_SCHEDULER else client_files
    url = f"{'https' if files else 'http'}://127.0.0.1:9"
    understood = read_config(json.loads(scheduler_config(mode, url, client_files=files)))
    assert isinstance(understood, dict), understood
    (extender,) = understood["extenders"]
    assert (extender["weight"], extender["httpTimeout"]) == (150, "30s")
    assert understood["clientConnection"]["qps"] == 2000
    assert understood["profiles"][-1]["percentageOfNodesToScore"] == 100


def test_filter_and_bind_have_one_timeout(read_config):
    """An entry for each would need the same resources in both, which kube-scheduler refuses."""
    content = json.loads(scheduler_config(Mode.SECOND_SCHEDULER, "http://127.0.0.1:9"))
    (both,) = content["extenders"]
    binder = {
        key: both[key] for key in ("urlPrefix", "bindVerb", "httpTimeout", "managedResources")
    }
    others = {key: both[key] for key in both if key != "bindVerb"} | {"httpTimeout": "5s"}
    content["extenders"] = [others, binder]
    assert "duplicate extender managed resource name" in read_config(content)
