"""The chart's node plugin: its rights, whom the policies mean, what it gets of a host."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import re
import select
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from kube.client import ApiServer, KubeletClient, ObjectEvent
from kube.objects import ObjectKey
from kube.settings import add_options, given_settings
from plugin import command_line
from plugin.config import Mode, PluginSettings, load_settings
from plugin.nvidia.container.cdi_files import CdiGenerator
from tests.cluster.control.manifests import DEPLOY, documents
from tests.unit.kube.requesters import ScriptedRequester
from topology.cli.program import Parser
from topology.model import names
from topology.recordings import load_recording

pytestmark = pytest.mark.cluster

PLUGIN = DEPLOY.parent / "plugin"
DRIVER = "/driver-root"
DEVICE_PLUGIN, REPORTER, OPERATOR = ("device-plugin",), ("audit",), ("gpu-operator",)
CDI = (*DEVICE_PLUGIN, "plugin.deviceListStrategy=cdi-cri")
VOLUME_MOUNTS = (*DEVICE_PLUGIN, "plugin.deviceListStrategy=volume-mounts")
HOST_DRIVER = (*OPERATOR, "plugin.driverRoot=/")
SIMULATED, OPENSHIFT = ("simulated",), ("openshift",)
VARIANTS = (
    DEVICE_PLUGIN,
    REPORTER,
    OPERATOR,
    CDI,
    VOLUME_MOUNTS,
    HOST_DRIVER,
    SIMULATED,
    OPENSHIFT,
)
"""A way of the chart, and values on top."""
IDS = [" ".join(one) for one in VARIANTS]
ON_DRIVER = {"/var/run/cdi", DRIVER, "/usr/local/nvidia"}
MOUNTED = {
    CDI: {"/var/run/cdi", f"{DRIVER}/usr", f"{DRIVER}/dev"},
    OPERATOR: ON_DRIVER,
    OPENSHIFT: ON_DRIVER,
    HOST_DRIVER: {"/var/run/cdi", "/usr/local/nvidia", f"{DRIVER}/usr", f"{DRIVER}/dev"},
    VOLUME_MOUNTS: {"/var/run/nvidia-container-devices/all"},
}
"""What they mount beside the kubelet's folders and /sys."""
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
    roles = [one for one in documents("rights/agent-rbac") if "rules" in one]
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


def test_the_account_is_the_same_everywhere():
    """In the pod, at its role, and in both policies."""
    namespace, name = "coterie-node", "coterie-plugin"
    (daemonset,) = documents("plugin/daemonset", *OPENSHIFT)
    assert daemonset["metadata"]["namespace"] == namespace
    assert pod_spec(*OPENSHIFT)["serviceAccountName"] == name
    made, *others = documents("rights/agent-rbac", "audit")
    assert (made["metadata"]["namespace"], made["metadata"]["name"]) == (namespace, name)
    bindings = [one for one in others if "subjects" in one]
    assert {one["kind"] for one in bindings} == {"ClusterRoleBinding", "RoleBinding"}
    for one in bindings:
        assert one["subjects"] == [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]
        assert one["roleRef"]["kind"] == one["kind"].removesuffix("Binding")
    user = f"system:serviceaccount:{namespace}:{name}"
    (scc,) = documents("plugin/security-context-constraints", *OPENSHIFT)
    assert scc["users"] == [user]
    (created,) = documents("plugin/namespace", "audit")
    assert created["metadata"]["name"] == namespace
    for template in ("rights/agent-rights", "rights/node-keys"):
        text = json.dumps(documents(template, "audit"))
        assert re.findall(r"'(system:serviceaccount:[^']+)'", text) == [user]


@pytest.mark.parametrize(
    ("template", "operations"),
    [
        ("rights/agent-rights", ["CREATE", "UPDATE", "DELETE"]),
        ("rights/node-keys", ["CREATE", "UPDATE"]),
    ],
)
def test_policies_guard_the_nodes_keys_at_every_door(template, operations):
    """Both doors of a Node keep metadata (pkg/registry/core/node/strategy.go); they fail closed."""
    policy, binding = documents(template, "audit")
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


def pod_spec(*variant):
    """The spec of the plugins' pods."""
    return documents("plugin/daemonset", *(variant or DEVICE_PLUGIN))[0]["spec"]["template"]["spec"]


def container(*variant):
    """The one container."""
    (found,) = pod_spec(*variant)["containers"]
    return found


def started(*variant):
    """Variables, paths that are mounted, and arguments of the container."""
    plugin = container(*variant)
    environ = {one["name"]: one.get("value", "10.0.0.7") for one in plugin["env"]}
    return environ, {one["mountPath"] for one in plugin["volumeMounts"]}, plugin["args"]


def test_exceptions_are_those_that_are_justified():
    """Root and three folders; everything else is as locked down as the extender."""
    spec = pod_spec()
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


def test_two_plugins_never_meet_on_a_node():
    """The end of the first one's stream would disconnect the second from the kubelet (1.36.3)."""
    daemonset, *others = documents("plugin/daemonset")
    update = daemonset["spec"]["updateStrategy"]["rollingUpdate"]
    assert (update["maxSurge"], others) == (0, [])
    labels = daemonset["spec"]["selector"]["matchLabels"]
    assert daemonset["spec"]["template"]["metadata"]["labels"].items() >= labels.items()


def test_the_plugin_comes_before_what_it_serves():
    """Never evicted, kept away by no common taint of GPU nodes, never throttled."""
    spec = pod_spec()
    assert spec["priorityClassName"] == "system-node-critical"
    assert {"key": names.DEFAULT_RESOURCE, "operator": "Exists", "effect": "NoSchedule"} in (
        spec["tolerations"]
    )
    resources = container()["resources"]
    assert resources["requests"].keys() == {"cpu", "memory"}
    assert resources["limits"].keys() == {"memory"}


def test_the_plugin_knows_its_node():
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


@pytest.mark.parametrize("variant", VARIANTS, ids=IDS)
def test_settings_are_the_plugins(variant):
    """A setting that the plugin does not know would stop it at its start."""
    environ, mounted, (command, *flags) = started(*variant)
    parser = Parser()
    add_options(parser, PluginSettings)
    given = given_settings(PluginSettings, parser.parse_args(flags))
    settings = load_settings(given, environ).settings
    assert command == "run"
    assert (settings.node, settings.kubelet_address) == ("10.0.0.7", "10.0.0.7")
    needed = {settings.device_plugin_folder, settings.sysfs_root}
    needed.add(settings.pod_resources_socket.parent)
    assert mounted == {str(one) for one in needed} | MOUNTED.get(variant, set())
    assert str(settings.driver_root_ctr_path) == DRIVER
    if settings.access_rules.has_cdi:
        assert {str(settings.cdi_folder)} < mounted
        tools = (str(settings.toolkit_folder), str(settings.toolkit_folder.parent))
        assert not mounted.isdisjoint(tools)
    assert [one["containerPort"] for one in container()["ports"]] == [settings.metrics_port]
    assert settings.mode is (Mode.REPORTER if variant == REPORTER else Mode.DEVICE_PLUGIN)
    assert bool(settings.simulate) == (variant == SIMULATED)


@pytest.mark.parametrize("variant", [DEVICE_PLUGIN, VOLUME_MOUNTS, OPERATOR], ids=" ".join)
def test_nodes_are_cleaned_by_the_plugins_account_and_folders(variant):
    """And under its probes: `clean` answers them, so that a rollout ends with clean nodes.

    It reads no GPU: neither NVIDIA's runtime nor its operator has to be there any more.
    """
    clean = (*variant, "plugin.clean=true")
    environ, mounted, args = started(*clean)
    given = command_line.parser().parse_args(args)
    assert (args[0], given.annotations, given.stay) == ("clean", True, True)
    assert (given.force, given.dry_run) == (False, False)
    assert environ["NVIDIA_VISIBLE_DEVICES"] == "void"
    settings = load_settings({}, environ).settings
    needed = {settings.device_plugin_folder, settings.pod_resources_socket.parent}
    assert {str(one) for one in needed} < mounted
    assert "/var/run/nvidia-container-devices/all" not in mounted
    spec = pod_spec(*clean)
    assert not {"runtimeClassName", "initContainers"} & spec.keys()
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"}
    (daemonset,) = documents("plugin/daemonset", *clean)
    assert daemonset["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == "100%"


def test_probes_check_different_things():
    """A plugin that waits for the kubelet lives: killed, it would wait again."""
    plugin = container()
    live, ready = (plugin[f"{kind}Probe"]["httpGet"] for kind in ("liveness", "readiness"))
    assert (live["path"], ready["path"]) == ("/livez", "/readyz")
    assert plugin["startupProbe"]["httpGet"] == live
    assert {live["port"], ready["port"]} == {one["name"] for one in plugin["ports"]}


def test_only_the_health_port_is_open():
    """To Prometheus, for every pod of the namespace; the port is one that the plugin has."""
    (policy,) = documents("plugin/network-policy", "audit")
    spec = policy["spec"]
    (daemonset,) = documents("plugin/daemonset", "audit")
    assert policy["metadata"]["namespace"] == daemonset["metadata"]["namespace"]
    assert (spec["podSelector"], spec["policyTypes"]) == ({}, ["Ingress"])
    (rule,) = spec["ingress"]
    assert [one["port"] for one in rule["ports"]] == [one["name"] for one in container()["ports"]]
    (source,) = rule["from"]
    assert source.keys() == {"namespaceSelector"}


@pytest.mark.parametrize("variant", VARIANTS, ids=IDS)
def test_no_plugin_sees_the_whole_host(variant):
    """Root would read every key of the node."""
    for volume in pod_spec(*variant)["volumes"]:
        assert volume.get("hostPath", {}).get("path") != "/"


def node_labels(spec):
    """The labels of which a node must have one, by the pod's affinity."""
    affinity = spec["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return {one["key"] for term in terms for one in term["matchExpressions"]}


def test_nodes_are_found_by_every_label_of_gpus():
    """NFD's own default has class and vendor, NVIDIA's charts set it to the vendor alone."""
    nfd = "feature.node.kubernetes.io/pci-{}10de.present"
    assert node_labels(pod_spec()) == {
        *(nfd.format(kind) for kind in ("", "0302_", "0300_")),
        "nvidia.com/gpu.present",
        names.PREFIX + "agent",
    }


def test_nodes_can_be_taken_over_one_by_one():
    """Found by other labels too, the plugins would start beside NVIDIA's on all nodes at once."""
    assert node_labels(pod_spec(*DEVICE_PLUGIN, "plugin.onlyLabelledNodes=true")) == {
        names.PREFIX + "agent"
    }


def test_the_gpu_operator_can_stop_its_clients():
    """By the label's value, before it unloads a driver; only as node selector it counts.

    The validator's label is on nodes whose GPUs are for containers, and on no others
    (gpu-operator v26.7.0, controllers/state_manager.go, gpuStateLabels).
    """
    operator = "nvidia.com/gpu.deploy."
    for variant in (OPERATOR, ("audit", "plugin.profile=gpu-operator")):
        spec = pod_spec(*variant)
        assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"} | dict.fromkeys(
            (f"{operator}client", f"{operator}operator-validator"), "true"
        )
        assert spec["runtimeClassName"] == "nvidia"


def test_clients_of_the_gpu_operator_wait_for_driver_and_toolkit(tmp_path):
    """It restarts them before the driver is there, and NVIDIA's runtime needs one."""
    (first,) = pod_spec(*OPERATOR)["initContainers"]
    (mount,) = first["volumeMounts"]
    volumes = {one["name"]: one for one in pod_spec(*OPERATOR)["volumes"]}
    volume = volumes[mount["name"]]
    assert volume["hostPath"]["path"] == mount["mountPath"] == "/run/nvidia/validations"
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in first["env"]
    assert first["securityContext"] == container()["securityContext"]
    assert first["image"] == container(*OPERATOR)["image"]
    python, option = first["command"]
    folder = python.removesuffix("/bin/python")
    recipe = (DEPLOY / "release" / "install.py").read_text(encoding="utf-8")
    assert f'ENVIRONMENT = Path("{folder}")' in recipe
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
    environ, _, _ = started(*OPERATOR)
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
    environ, mounted, _ = started(*OPERATOR)
    toolkit = load_settings({}, environ).settings.toolkit_folder
    assert str(toolkit) not in mounted
    assert str(toolkit.parent) in mounted


def test_where_variables_are_refused_the_plugin_names_its_gpus_by_a_mount():
    """NVIDIA's runtime ignores the variable of an unprivileged container there."""
    assert container(*VOLUME_MOUNTS)["securityContext"] == container()["securityContext"]
    volumes = {one["name"]: one["hostPath"] for one in pod_spec(*VOLUME_MOUNTS)["volumes"]}
    assert volumes["all-gpus"] == {"path": "/dev/null", "type": "CharDevice"}


def test_openshift_allows_what_the_plugin_does_and_no_more():
    """Its constraints are those of the pod's security contexts."""
    (scc,) = documents("plugin/security-context-constraints", *OPENSHIFT)
    own = container(*OPENSHIFT)["securityContext"]
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
    assert pod_spec(*OPENSHIFT)["securityContext"]["seLinuxOptions"] == {"type": "spc_t"}
    (scc,) = documents("plugin/security-context-constraints", *OPENSHIFT)
    assert scc["seLinuxContext"] == {"type": "RunAsAny"}


def test_the_simulated_machine_is_a_recording():
    """That ships, and only on nodes that are labelled for it."""
    spec = pod_spec(*SIMULATED)
    _, _, recording = spec["containers"][0]["args"][1].partition("=")
    assert load_recording(recording).gpus
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    (term,) = spec["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"]
    (label,) = term["matchExpressions"]
    assert label["key"] == names.PREFIX + "simulated"
