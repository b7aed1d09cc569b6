"""The manifests of the node agent: its rights, whom the policies mean, what it gets of a host."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re

import pytest
import yaml

from kube.client import ApiServer, KubeletClient
from kube.settings import Parser, add_options, given_settings
from plugin.config import Mode, PluginSettings, load_settings
from tests.cluster.control.manifests import DEPLOY, documents, pod_spec
from tests.unit.kube.requesters import ScriptedRequester
from topology.model import names
from topology.recordings import load_recording

PLUGIN = DEPLOY.parent / "plugin"
DAEMONSET = "plugin/daemonset.yaml"
OVERLAYS = ("plugin-simulated", "plugin-reporter", "plugin-cdi")
HOSTS_FOLDERS = {
    "/var/lib/kubelet/device-plugins": ("/var/lib/kubelet/device-plugins", False),
    "/var/lib/kubelet/pod-resources": ("/var/lib/kubelet/pod-resources", True),
    "/sys": ("/host/sys", True),
}
TO_API_SERVER = {"annotate_node": lambda it: it.annotate_node("n", {})}
TO_KUBELET = {"pods": lambda it: it.pods(), "topology_manager": lambda it: it.topology_manager()}
# The permission that a kubelet checks for a request to it (pkg/kubelet/server/auth.go, 1.36.3).
KUBELETS_RIGHTS = {"/pods": "nodes/pods", "/configz": "nodes/configz"}


def methods(kind):
    """The public requests of a client."""
    found = inspect.getmembers(kind, inspect.iscoroutinefunction)
    return {name for name, _ in found if not name.startswith("_")}


def used():
    """All attribute names that the plugin's code uses."""
    return {
        node.attr
        for path in PLUGIN.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
    }


def request_of(kind, call):
    """The one request that a call makes."""
    requester = ScriptedRequester(b'{"metadata":{},"kubeletconfig":{}}')

    async def send():
        await asyncio.gather(call(kind(requester)), return_exceptions=True)

    asyncio.run(send())
    (request,) = requester.requests
    return request


def test_every_call_is_counted():
    """A request that the plugin comes to make must not escape the count."""
    assert methods(ApiServer) & used() == TO_API_SERVER.keys()
    assert methods(KubeletClient) == TO_KUBELET.keys()


def test_role_is_what_the_code_needs():
    """One account on all nodes: what it may do too much, it may do everywhere."""
    needed = set()
    for call in TO_API_SERVER.values():
        request = request_of(ApiServer, call)
        assert request.path == "/api/v1/nodes/n"
        needed.add((request.method.lower(), "", "nodes"))
    for call in TO_KUBELET.values():
        request = request_of(KubeletClient, call)
        needed.add((request.method.lower(), "", KUBELETS_RIGHTS[request.path]))
    roles = [one for one in documents("plugin/rbac.yaml") if "rules" in one]
    granted = {
        (verb, group, resource)
        for role in roles
        for rule in role["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert granted == needed


# Policies

POLICIES = ("plugin/agent-rights.yaml", "plugin/node-keys.yaml")


@pytest.fixture
def account():
    """The name under which the API server knows the agent."""
    spec = pod_spec(DAEMONSET)
    namespace = documents(DAEMONSET)[0]["metadata"]["namespace"]
    return namespace, spec["serviceAccountName"]


def test_the_account_is_the_same_everywhere(account):
    """In the pod, at its role, and in both policies."""
    namespace, name = account
    made, _, bound = documents("plugin/rbac.yaml")
    assert (made["metadata"]["namespace"], made["metadata"]["name"]) == account
    assert bound["subjects"] == [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]
    (created,) = documents("plugin/namespace.yaml")
    assert created["metadata"]["name"] == namespace
    for path in POLICIES:
        text = (DEPLOY / path).read_text(encoding="utf-8")
        named = re.findall(r"'(system:serviceaccount:[^']+)'", text)
        assert named == [f"system:serviceaccount:{namespace}:{name}"]


@pytest.mark.parametrize(
    ("path", "operations"),
    [
        ("plugin/agent-rights.yaml", ["CREATE", "UPDATE", "DELETE"]),
        ("plugin/node-keys.yaml", ["CREATE", "UPDATE"]),
    ],
)
def test_policies_guard_the_nodes_keys_at_every_door(path, operations):
    """Both doors of a Node keep metadata (pkg/registry/core/node/strategy.go); they fail closed."""
    policy, binding = documents(path)
    spec = policy["spec"]
    (rule,) = spec["matchConstraints"]["resourceRules"]
    assert rule["resources"] == ["nodes", "nodes/status"]
    assert rule["operations"] == operations
    assert spec["failurePolicy"] == "Fail"
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]
    assert binding["spec"]["validationActions"] == ["Deny"]
    expressions = " ".join(one["expression"] for one in spec["variables"])
    assert re.findall(r"'(coterie\.gpu/[^']+)'", expressions) == [names.TOPOLOGY, names.DEVICES]


# The pod


def container():
    """The one container."""
    (found,) = pod_spec(DAEMONSET)["containers"]
    return found


def test_exceptions_are_those_that_are_justified():
    """Root and three folders; everything else is as locked down as the extender."""
    spec = pod_spec(DAEMONSET)
    assert spec["securityContext"] == {
        "runAsUser": 0,
        "runAsGroup": 0,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container()["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    mounts = {
        one["name"]: (one["mountPath"], one.get("readOnly", False))
        for one in container()["volumeMounts"]
    }
    folders = {one["hostPath"]["path"]: mounts[one["name"]] for one in spec["volumes"]}
    assert folders == HOSTS_FOLDERS
    text = (DEPLOY / DAEMONSET).read_text(encoding="utf-8")
    assert text.count("# Exception: ") == 1 + len(HOSTS_FOLDERS)


def test_two_agents_never_meet_on_a_node():
    """The end of the first one's stream would disconnect the second from the kubelet (1.36.3)."""
    daemonset, *others = documents(DAEMONSET)
    update = daemonset["spec"]["updateStrategy"]["rollingUpdate"]
    assert (update["maxSurge"], others) == (0, [])
    labels = daemonset["spec"]["selector"]["matchLabels"]
    assert daemonset["spec"]["template"]["metadata"]["labels"].items() >= labels.items()


def test_the_agent_comes_before_what_it_serves():
    """Never evicted, kept away by no common taint of GPU nodes, never throttled."""
    spec = pod_spec(DAEMONSET)
    assert spec["priorityClassName"] == "system-node-critical"
    assert {"key": names.DEFAULT_RESOURCE, "operator": "Exists", "effect": "NoSchedule"} in (
        spec["tolerations"]
    )
    resources = container()["resources"]
    assert resources["requests"].keys() == {"cpu", "memory"}
    assert resources["limits"].keys() == {"memory"}


def patches():
    """What each overlay does to the pod's spec."""
    for folder in OVERLAYS:
        (kustomization,) = documents(f"{folder}/kustomization.yaml")
        (patch,) = (yaml.safe_load(one["patch"]) for one in kustomization["patches"])
        yield folder, patch["spec"]["template"]["spec"]


def test_the_agent_knows_its_node():
    """Its name at the API server, and the address of its kubelet."""
    fields = {
        one["name"]: one["valueFrom"]["fieldRef"]["fieldPath"]
        for one in container()["env"]
        if "valueFrom" in one
    }
    assert fields == {"NODE_NAME": "spec.nodeName", "NODE_IP": "status.hostIP"}


@pytest.mark.parametrize("folder", ["plugin", *OVERLAYS])
def test_settings_are_the_agents(folder):
    """A setting that the agent does not know would stop it at its start."""
    patch = dict(patches()).get(folder, {"containers": [{}]})["containers"][0]
    environ = {one["name"]: one.get("value", "10.0.0.7") for one in container()["env"]}
    environ |= {one["name"]: one["value"] for one in patch.get("env", ())}
    command, *flags = patch.get("args", container()["args"])
    parser = Parser()
    add_options(parser, PluginSettings)
    given = given_settings(PluginSettings, parser.parse_args(flags))
    settings = load_settings(given, environ).settings
    assert command == "run"
    assert (settings.node, settings.kubelet_address) == ("10.0.0.7", "10.0.0.7")
    mounted = {one["mountPath"] for one in container()["volumeMounts"]}
    mounted |= {one["mountPath"] for one in patch.get("volumeMounts", ())}
    needed = {settings.device_plugin_folder, settings.sysfs_root}
    needed.add(settings.pod_resources_socket.parent)
    if folder == "plugin-cdi":
        needed |= {settings.cdi_folder, settings.driver_root_ctr_path}
    assert mounted == {str(one) for one in needed}
    assert [one["containerPort"] for one in container()["ports"]] == [settings.metrics_port]
    assert settings.mode is (Mode.REPORTER if folder == "plugin-reporter" else Mode.DEVICE_PLUGIN)
    assert bool(settings.simulate) == (folder == "plugin-simulated")


def test_probes_ask_different_things():
    """An agent that waits for the kubelet lives: killed, it would wait again."""
    agent = container()
    live, ready = (agent[f"{kind}Probe"]["httpGet"] for kind in ("liveness", "readiness"))
    assert (live["path"], ready["path"]) == ("/livez", "/readyz")
    assert agent["startupProbe"]["httpGet"] == live
    assert {live["port"], ready["port"]} == {one["name"] for one in agent["ports"]}


@pytest.mark.parametrize("folder", OVERLAYS)
def test_overlays_patch_what_is_there(folder):
    """A patch of a container of another name would add one."""
    (kustomization,) = documents(f"{folder}/kustomization.yaml")
    (patch,) = (yaml.safe_load(one["patch"]) for one in kustomization["patches"])
    daemonset = documents(DAEMONSET)[0]
    assert patch["kind"] == daemonset["kind"]
    assert patch["metadata"].items() <= daemonset["metadata"].items()
    (patched,) = dict(patches())[folder]["containers"]
    assert patched["name"] == container()["name"]


def test_the_simulated_machine_is_a_recording():
    """That ships, and only on nodes that are labelled for it."""
    spec = dict(patches())["plugin-simulated"]
    _, _, recording = spec["containers"][0]["args"][1].partition("=")
    assert load_recording(recording).gpus
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    (term,) = spec["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"]
    (label,) = term["matchExpressions"]
    assert label["key"] == names.PREFIX + "simulated"
