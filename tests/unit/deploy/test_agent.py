"""The manifests of the node agent: its rights, whom the policies mean, what it gets of a host."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import select
import subprocess
import sys
from datetime import UTC, datetime

import pytest
import yaml

from kube.client import ApiServer, KubeletClient, ObjectEvent
from kube.objects import ObjectKey
from kube.settings import add_options, given_settings
from plugin import command_line
from plugin.config import Mode, PluginSettings, load_settings
from plugin.nvidia.container.cdi_files import CdiGenerator
from tests.cluster.control.manifests import DEPLOY, documents, pod_spec
from tests.unit.kube.requesters import ScriptedRequester
from topology.cli.program import Parser
from topology.model import names
from topology.recordings import load_recording

PLUGIN = DEPLOY.parent / "plugin"
DAEMONSET = "plugin/daemonset.yaml"
OVERLAYS = tuple(sorted(path.name for path in DEPLOY.glob("plugin-*")))
DRIVER = "/driver-root"
CLEAN = "plugin-clean"
MOUNTED = {
    "plugin-cdi": {"/var/run/cdi", f"{DRIVER}/usr", f"{DRIVER}/dev"},
    "plugin-gpu-operator": {"/var/run/cdi", DRIVER, "/usr/local/nvidia"},
    "plugin-gpu-operator-host-driver": {
        *("/var/run/cdi", "/usr/local/nvidia", f"{DRIVER}/usr", f"{DRIVER}/dev")
    },
    "plugin-volume-mounts": {"/var/run/nvidia-container-devices/all"},
}
"""What overlays mount beside the kubelet's folders and /sys."""
HOSTS_FOLDERS = {
    "/var/lib/kubelet/device-plugins": ("/var/lib/kubelet/device-plugins", False),
    "/var/lib/kubelet/pod-resources": ("/var/lib/kubelet/pod-resources", True),
    "/sys": ("/host/sys", True),
}
EVENT = ObjectEvent(
    about=ObjectKey("", "n", "n"),
    is_warning=True,
    reason="Reason",
    message="text",
    at=datetime(2026, 1, 1, tzinfo=UTC),
    component="coterie",
    instance="n",
)
TO_API_SERVER = {
    "annotate_node": lambda it: it.annotate_node("n", {}),
    "create_event": lambda it: it.create_event(EVENT),
}
PATHS = {
    "/api/v1/nodes/n": ("ClusterRole", "nodes"),
    "/api/v1/namespaces/default/events": ("Role", "events"),
}
VERBS = {"GET": "get", "PATCH": "patch", "POST": "create"}
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
        kind, resource = PATHS[request.path]
        needed.add((kind, VERBS[request.method], "", resource))
    for call in TO_KUBELET.values():
        request = request_of(KubeletClient, call)
        needed.add(("ClusterRole", VERBS[request.method], "", KUBELETS_RIGHTS[request.path]))
    roles = [one for one in documents("plugin/rbac.yaml") if "rules" in one]
    assert all(role["metadata"].get("namespace", "default") == "default" for role in roles)
    granted = {
        (role["kind"], verb, group, resource)
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
    made, *others = documents("plugin/rbac.yaml")
    assert (made["metadata"]["namespace"], made["metadata"]["name"]) == account
    bindings = [one for one in others if "subjects" in one]
    assert {one["kind"] for one in bindings} == {"ClusterRoleBinding", "RoleBinding"}
    for one in bindings:
        assert one["subjects"] == [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]
        assert one["roleRef"]["kind"] == one["kind"].removesuffix("Binding")
    (scc,) = documents("plugin-openshift/scc.yaml")
    assert scc["users"] == [f"system:serviceaccount:{namespace}:{name}"]
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


def patch_of(folder):
    """The one patch of an overlay."""
    (kustomization,) = documents(f"{folder}/kustomization.yaml")
    (patch,) = (yaml.safe_load(one["patch"]) for one in kustomization["patches"])
    return patch


def spec_of(folder):
    """What an overlay does to the pod's spec."""
    return patch_of(folder)["spec"]["template"]["spec"]


def patched(folder):
    """Variables, paths that are mounted, and arguments of the container with an overlay."""
    if folder == "plugin":
        environ = {one["name"]: one.get("value", "10.0.0.7") for one in container()["env"]}
        mounts = {one["mountPath"] for one in container()["volumeMounts"]}
        return environ, mounts, container()["args"]
    (kustomization,) = documents(f"{folder}/kustomization.yaml")
    (parent,) = kustomization.get("components", ["../plugin"])
    environ, mounts, args = patched(parent.removeprefix("../"))
    (patch,) = spec_of(folder).get("containers", ({},))
    environ |= {one["name"]: one["value"] for one in patch.get("env", ())}
    for one in patch.get("volumeMounts", ()):
        (mounts.discard if "$patch" in one else mounts.add)(one["mountPath"])
    return environ, mounts, patch.get("args", args)


def test_the_agent_knows_its_node():
    """Its name at the API server, and the address of its kubelet."""
    fields = {
        one["name"]: one["valueFrom"]["fieldRef"]["fieldPath"]
        for one in container()["env"]
        if "valueFrom" in one
    }
    assert fields == {
        "NODE_NAME": "spec.nodeName",
        "NODE_IP": "status.hostIP",
        "POD_UID": "metadata.uid",
    }


@pytest.mark.parametrize("folder", ["plugin", *(one for one in OVERLAYS if one != CLEAN)])
def test_settings_are_the_agents(folder):
    """A setting that the agent does not know would stop it at its start."""
    environ, mounted, (command, *flags) = patched(folder)
    parser = Parser()
    add_options(parser, PluginSettings)
    given = given_settings(PluginSettings, parser.parse_args(flags))
    settings = load_settings(given, environ).settings
    assert command == "run"
    assert (settings.node, settings.kubelet_address) == ("10.0.0.7", "10.0.0.7")
    needed = {settings.device_plugin_folder, settings.sysfs_root}
    needed.add(settings.pod_resources_socket.parent)
    assert mounted == {str(one) for one in needed} | MOUNTED.get(folder, set())
    assert str(settings.driver_root_ctr_path) == DRIVER
    if settings.access_rules.has_cdi:
        assert {str(settings.cdi_folder)} < mounted
        tools = (str(settings.toolkit_folder), str(settings.toolkit_folder.parent))
        assert not mounted.isdisjoint(tools)
    assert [one["containerPort"] for one in container()["ports"]] == [settings.metrics_port]
    assert settings.mode is (Mode.REPORTER if folder == "plugin-reporter" else Mode.DEVICE_PLUGIN)
    assert bool(settings.simulate) == (folder == "plugin-simulated")


def test_nodes_are_cleaned_by_the_agents_account_and_folders():
    """And under its probes: `clean` answers them, so that a rollout ends with clean nodes."""
    environ, mounted, args = patched(CLEAN)
    given = command_line.parser().parse_args(args)
    assert (args[0], given.annotations, given.stay) == ("clean", True, True)
    assert (given.force, given.dry_run) == (False, False)
    (patch,) = spec_of(CLEAN)["containers"]
    assert patch.keys() == {"name", "args", "env", "volumeMounts"}
    assert all(one["$patch"] == "delete" for one in patch["volumeMounts"])
    settings = load_settings({}, environ).settings
    needed = {settings.device_plugin_folder, settings.pod_resources_socket.parent}
    assert {str(one) for one in needed} < mounted


def test_probes_check_different_things():
    """An agent that waits for the kubelet lives: killed, it would wait again."""
    agent = container()
    live, ready = (agent[f"{kind}Probe"]["httpGet"] for kind in ("liveness", "readiness"))
    assert (live["path"], ready["path"]) == ("/livez", "/readyz")
    assert agent["startupProbe"]["httpGet"] == live
    assert {live["port"], ready["port"]} == {one["name"] for one in agent["ports"]}


def test_only_the_health_port_is_open():
    """To Prometheus, for every pod of the namespace; the port is one that the agent has."""
    (policy,) = documents("plugin/network-policy.yaml")
    spec = policy["spec"]
    assert policy["metadata"]["namespace"] == documents(DAEMONSET)[0]["metadata"]["namespace"]
    assert (spec["podSelector"], spec["policyTypes"]) == ({}, ["Ingress"])
    (rule,) = spec["ingress"]
    assert [one["port"] for one in rule["ports"]] == [one["name"] for one in container()["ports"]]
    (source,) = rule["from"]
    assert source.keys() == {"namespaceSelector"}
    (kustomization,) = documents("plugin/kustomization.yaml")
    assert "network-policy.yaml" in kustomization["resources"]


@pytest.mark.parametrize("folder", OVERLAYS)
def test_overlays_patch_what_is_there(folder):
    """A patch of a container of another name would add one."""
    patch, daemonset = patch_of(folder), documents(DAEMONSET)[0]
    assert patch["kind"] == daemonset["kind"]
    assert patch["metadata"].items() <= daemonset["metadata"].items()
    for one in spec_of(folder).get("containers", ()):
        assert one["name"] == container()["name"]


@pytest.mark.parametrize("folder", OVERLAYS)
def test_no_overlay_sees_the_whole_host(folder):
    """Root would read every key of the node."""
    for volume in spec_of(folder).get("volumes", ()):
        assert volume.get("hostPath", {}).get("path") != "/"


def node_labels(spec):
    """The labels of which a node must have one, by the pod's affinity."""
    affinity = spec["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return {one["key"] for term in terms for one in term["matchExpressions"]}


def test_nodes_are_found_by_every_label_of_gpus():
    """NFD's own default has class and vendor, NVIDIA's charts set it to the vendor alone."""
    nfd = "feature.node.kubernetes.io/pci-{}10de.present"
    assert node_labels(pod_spec(DAEMONSET)) == {
        *(nfd.format(kind) for kind in ("", "0302_", "0300_")),
        "nvidia.com/gpu.present",
        names.PREFIX + "agent",
    }


def test_nodes_can_be_taken_over_one_by_one():
    """Found by other labels too, the agents would start beside NVIDIA's on all nodes at once."""
    assert node_labels(spec_of("plugin-labelled-nodes")) == {names.PREFIX + "agent"}


CLIENT = "plugin-gpu-operator-client"


def test_the_gpu_operator_can_stop_its_clients():
    """By the label's value, before it unloads a driver; only as node selector it counts.

    The validator's label is on nodes whose GPUs are for containers, and on no others
    (gpu-operator v26.7.0, controllers/state_manager.go, gpuStateLabels).
    """
    spec = spec_of(CLIENT)
    operator = "nvidia.com/gpu.deploy."
    assert spec["nodeSelector"] == dict.fromkeys(
        (f"{operator}client", f"{operator}operator-validator"), "true"
    )
    assert spec["runtimeClassName"] == "nvidia"


def test_clients_of_the_gpu_operator_wait_for_driver_and_toolkit(tmp_path):
    """It restarts them before the driver is there, and NVIDIA's runtime needs one."""
    (first,) = spec_of(CLIENT)["initContainers"]
    (mount,) = first["volumeMounts"]
    (volume,) = spec_of(CLIENT)["volumes"]
    assert volume["name"] == mount["name"]
    assert volume["hostPath"]["path"] == mount["mountPath"] == "/run/nvidia/validations"
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in first["env"]
    assert first["securityContext"] == container()["securityContext"]
    (kustomization,) = documents("plugin/kustomization.yaml")
    (image,) = kustomization["images"]
    assert first["image"] == f"{image['name']}:{image['newTag']}"
    python, option = first["command"]
    # The other way to build the image is tried in tests/cluster/of_deployment/test_images.py.
    folder = python.removesuffix("/bin/python")
    recipe = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    assert f"RUN python -m venv {folder} " in recipe
    (script,) = first["args"]
    ready = tmp_path / "toolkit-ready"
    command = [sys.executable, option, script.replace(mount["mountPath"], str(tmp_path))]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as waiting:
        try:
            assert waiting.stdout is not None
            assert select.select([waiting.stdout], [], [], 60)[0]
            assert waiting.stdout.readline() == f"waiting for {ready}\n".encode()
            with pytest.raises(subprocess.TimeoutExpired):
                waiting.wait(0.5)
        finally:
            waiting.kill()
        assert waiting.stdout.read() == b""
    ready.touch()
    subprocess.run(command, timeout=60, check=True)


def test_beside_the_gpu_operator_containers_get_complete_cdi_devices():
    """Its default runtime reads no variable; the toolkit is the one that it installs."""
    (kustomization,) = documents("plugin-gpu-operator/kustomization.yaml")
    assert kustomization["components"] == [f"../{CLIENT}"]
    environ, _, _ = patched("plugin-gpu-operator")
    settings = load_settings({}, environ).settings
    rules = settings.cdi_rules
    assert settings.access_rules.is_cdi_only
    assert rules.generator is CdiGenerator.NVIDIA_CTK
    assert (str(rules.driver_root), str(rules.dev_root)) == ("/run/nvidia/driver",) * 2
    assert rules.options.hook_path == "/usr/local/nvidia/toolkit/nvidia-cdi-hook"


def test_a_toolkit_that_is_replaced_is_seen():
    """Its installer removes the folder first; a mount of it would show the removed one for ever.

    (nvidia-container-toolkit d34b3046, cmd/nvidia-ctk-installer/toolkit/toolkit.go:298.)
    """
    environ, mounted, _ = patched("plugin-gpu-operator")
    toolkit = load_settings({}, environ).settings.toolkit_folder
    assert str(toolkit) not in mounted
    assert str(toolkit.parent) in mounted


def test_where_variables_are_refused_the_agent_names_its_gpus_by_a_mount():
    """NVIDIA's runtime ignores the variable of an unprivileged container there."""
    (container_,) = spec_of("plugin-volume-mounts")["containers"]
    (volume,) = spec_of("plugin-volume-mounts")["volumes"]
    assert "securityContext" not in container_
    assert volume["hostPath"] == {"path": "/dev/null", "type": "CharDevice"}


def test_openshift_allows_what_the_agent_does_and_no_more():
    """Its constraints are those of the pod's security contexts."""
    (scc,) = documents("plugin-openshift/scc.yaml")
    own = container()["securityContext"]
    assert scc["allowPrivilegeEscalation"] is own["allowPrivilegeEscalation"]
    assert scc["readOnlyRootFilesystem"] is own["readOnlyRootFilesystem"]
    assert scc["requiredDropCapabilities"] == own["capabilities"]["drop"]
    allowed = {key for key, value in scc.items() if key.startswith("allow") and value}
    assert allowed == {"allowHostDirVolumePlugin"}


def test_selinux_lets_all_containers_write_and_wait():
    """CDI specifications and the operator's files are below /run.

    container_device_plugin_t has no rule for what is there (container-selinux 66ae652f,
    container.te:1649-1655); spc_t is what the operator's own, privileged clients run under.
    """
    spec = spec_of("plugin-openshift")
    assert spec == {"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}
    (scc,) = documents("plugin-openshift/scc.yaml")
    assert scc["seLinuxContext"] == {"type": "RunAsAny"}


def test_the_simulated_machine_is_a_recording():
    """That ships, and only on nodes that are labelled for it."""
    spec = spec_of("plugin-simulated")
    _, _, recording = spec["containers"][0]["args"][1].partition("=")
    assert load_recording(recording).gpus
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    (term,) = spec["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"]
    (label,) = term["matchExpressions"]
    assert label["key"] == names.PREFIX + "simulated"
