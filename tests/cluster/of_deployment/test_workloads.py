"""What the manifests promise about every container: locked down, probed, bounded, configured."""

from __future__ import annotations

import re
import tomllib

import pytest
import yaml

from extender.config import ExtenderSettings, load_settings
from tests.cluster.control.manifests import (
    DEPLOY,
    Mode,
    documents,
    extender_pod,
    extender_settings,
    kubeadm_pod,
    objects,
    shipped_config,
    workload,
)

pytestmark = pytest.mark.cluster

DEPLOYMENTS = (("scheduler/deployment", "second-scheduler"), ("extender/service", "service"))
"""Templates that make Deployments, each with a way that has it."""
ROOT = DEPLOY.parent


def pod_spec(template, way):
    """The spec of a workload's pods."""
    return workload(template, way)["spec"]["template"]["spec"]


def extender(mode):
    """The extender's container."""
    (found,) = (one for one in extender_pod(mode)["containers"] if "extender" in one["name"])
    return found


@pytest.fixture(params=Mode, ids=lambda mode: mode.value)
def containers(request):
    """All containers of Coterie's in a mode; kubeadm's own kube-scheduler is none."""
    pods = [extender_pod(request.param)]
    if request.param is Mode.SERVICE:
        pods.append(pod_spec("scheduler/deployment", "service"))
    found = [one for pod in pods for one in pod["containers"] if "image" in one]
    assert found
    return found


def test_containers_are_locked_down(containers):
    """An intruder finds no capability, nothing to write to and no escalation."""
    for container in containers:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize(("template", "way"), DEPLOYMENTS)
def test_pods_are_no_root(template, way):
    """The namespace enforces `restricted`, and a pod that falls short would never be made."""
    context = pod_spec(template, way)["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] > 0
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}


def test_sidecar_of_the_static_pod_is_no_root():
    """The pod of kubeadm runs as root and sets no user: the container must."""
    context = extender(Mode.KUBEADM)["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] > 0


@pytest.mark.parametrize("mode", Mode)
def test_probes_check_different_things(mode):
    """A live process that is not synced must be left running: killed, it restarts from nothing."""
    container = extender(mode)
    live, ready = (container[f"{kind}Probe"]["httpGet"] for kind in ("liveness", "readiness"))
    assert (live["path"], ready["path"]) == ("/livez", "/readyz")
    assert container["startupProbe"]["httpGet"] == live


@pytest.mark.parametrize("mode", Mode)
def test_an_extender_that_hangs_ends_before_the_scheduler_gives_up_a_call(mode):
    """kube-scheduler waits in its loop: the call fails when the process ends, not later."""
    probe = extender(mode)["livenessProbe"]
    found_s = probe["periodSeconds"] * probe["failureThreshold"] + probe["timeoutSeconds"]
    ended_s = found_s + probe["terminationGracePeriodSeconds"]
    assert ended_s < float(extender_settings(mode)["http_timeout_s"])


@pytest.mark.parametrize("mode", [Mode.SECOND_SCHEDULER, Mode.KUBEADM])
def test_a_leader_ends_where_its_extender_cannot_serve(mode):
    """Its probe calls the extender beside it, slowly enough for a first list and a restart."""
    pod = extender_pod(mode)
    if mode is Mode.KUBEADM:
        pod = kubeadm_pod("patches-leader-health/kube-scheduler2+strategic")
    scheduler = pod["containers"][0]
    probe, settings = scheduler["livenessProbe"], extender_settings(mode)
    check = probe["httpGet"]
    assert (scheduler["name"], check["path"], check["scheme"]) == (
        *("kube-scheduler", "/healthz", "HTTP"),
    )
    assert str(check["port"]) == settings.get("health_port", settings["listen_port"])
    assert probe["initialDelaySeconds"] >= 60
    assert 30 <= probe["periodSeconds"] * probe["failureThreshold"] < 60


def test_no_container_is_throttled(containers):
    """All of them work inside the serial scheduling cycle: a CPU limit would cost pods/s."""
    for container in containers:
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        assert "cpu" not in container["resources"].get("limits", {})


@pytest.mark.parametrize("mode", Mode)
def test_settings_are_the_extenders(mode, monkeypatch):
    """A setting that the extender does not know would stop it at its start."""
    for name, value in extender_settings(mode).items():
        monkeypatch.setenv(f"COTERIE_EXTENDER_{name.upper()}", value)
    settings = load_settings({})
    assert settings.cluster is None
    assert settings.listen_address == extender_settings(mode)["listen_address"]


@pytest.mark.parametrize("mode", Mode)
def test_plain_http_stays_on_the_loopback_of_a_pod(mode):
    """The verbs know no other authentication than certificates; a host's loopback is open."""
    settings = extender_settings(mode)
    assert ("tls_cert" in settings) == (mode is not Mode.SECOND_SCHEDULER)
    assert (settings["listen_address"] == "127.0.0.1") == (mode is not Mode.SERVICE)


def test_both_containers_of_the_static_pod_have_their_certificates():
    """At the paths that their settings name, each its own and no other."""
    (entry,) = yaml.safe_load(shipped_config(Mode.KUBEADM))["extenders"]
    settings = extender_settings(Mode.KUBEADM)
    named = {
        "kube-scheduler": set(entry["tlsConfig"].values()),
        "coterie-extender": {settings[key] for key in ("tls_cert", "tls_key", "tls_client_ca")},
    }
    spec = extender_pod(Mode.KUBEADM)
    hosts = {one["name"]: one.get("hostPath", {}).get("path") for one in spec["volumes"]}
    for container in spec["containers"]:
        (folder,) = {path.rpartition("/")[0] for path in named[container["name"]]}
        mounts = {one["mountPath"]: hosts[one["name"]] for one in container["volumeMounts"]}
        assert {path: one for path, one in mounts.items() if "tls" in path} == {folder: folder}


@pytest.mark.parametrize("mode", Mode)
def test_ports_are_where_the_probes_are(mode):
    """A probe of a port on which nothing listens kills a healthy container."""
    settings, container = extender_settings(mode), extender(mode)
    due = int(settings.get("health_port", settings["listen_port"]))
    named = {one["name"]: one["containerPort"] for one in container.get("ports", ())}
    probed = {container[f"{kind}Probe"]["httpGet"]["port"] for kind in ("liveness", "readiness")}
    assert {named.get(port, port) for port in probed} == {due}


@pytest.mark.parametrize("mode", [Mode.SECOND_SCHEDULER, Mode.SERVICE])
def test_policies_name_ports_that_are(mode):
    """A network policy for a port that no container has shuts out whom it should let in.

    The read API is on the loopback, which a port-forward reaches past every policy.
    """
    made = objects(mode.value, "plugin.enabled=false")
    ports = {
        port["name"]
        for one in made
        if one["kind"] == "Deployment"
        for container in one["spec"]["template"]["spec"]["containers"]
        for port in container.get("ports", ())
    }
    allowed = {
        port["port"]
        for policy in made
        if policy["kind"] == "NetworkPolicy"
        for rule in policy["spec"]["ingress"]
        for port in rule["ports"]
    }
    assert allowed == ports - {"read-api"}


@pytest.mark.parametrize("mode", Mode)
def test_the_read_api_is_on_the_loopback_alone(mode):
    """It has no authentication: who may forward a port of the pod reads."""
    container = extender(mode)
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    variables = {one["name"]: one.get("value") for one in container["env"]}
    assert variables["COTERIE_EXTENDER_READ_PORT"] == str(ports["read-api"]) == "8890"
    assert "COTERIE_EXTENDER_READ_ADDRESS" not in variables
    assert ExtenderSettings.model_fields["read_address"].default == "127.0.0.1"


@pytest.mark.parametrize(("template", "way"), [*DEPLOYMENTS, ("plugin/daemonset", "audit")])
def test_no_service_adds_variables(template, way):
    """Service `coterie-extender` would put `COTERIE_EXTENDER_PORT` into the pods beside it."""
    assert pod_spec(template, way)["enableServiceLinks"] is False


def test_one_scheduler_is_left():
    """Two of them, at most one of them taken away on purpose, not both on one host."""
    budget, deployment = documents("scheduler/deployment", "service")
    labels = deployment["spec"]["selector"]["matchLabels"]
    assert deployment["spec"]["replicas"] == 2
    assert deployment["spec"]["template"]["metadata"]["labels"].items() >= labels.items()
    assert budget["spec"] == {"maxUnavailable": 1, "selector": {"matchLabels": labels}}
    (spread,) = deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert spread["labelSelector"]["matchLabels"] == labels


def test_two_extenders_of_a_service_never_meet():
    """Each would give the same GPUs away by a state of its own."""
    spec = workload("extender/service", "service")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


@pytest.mark.parametrize(("template", "way"), DEPLOYMENTS)
def test_coteries_own_pods_need_no_coterie(template, way):
    """They must start while no extender runs: no GPU, no scheduler of ours, and before others."""
    spec = pod_spec(template, way)
    assert "schedulerName" not in spec
    assert "nvidia.com" not in str([one["resources"] for one in spec["containers"]])
    assert spec["priorityClassName"] == "system-cluster-critical"


def test_image_holds_what_the_distribution_holds():
    """A package that is missing in the image is found by the first who runs it."""
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    shipped = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    for_people = "kubectl_coterie"
    needed = [package for package in shipped if package != for_people]
    assert re.findall(r"^COPY (\w+) /", text, re.MULTILINE) == needed
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {f"!{copied}" for copied in re.findall(r"^COPY (\w\S+) ", text, re.MULTILINE)} <= {
        *ignored
    }
    (user,) = re.findall(r"^USER (\d+):", text, re.MULTILINE)
    assert int(user) == pod_spec("extender/service", "service")["securityContext"]["runAsUser"]


def test_no_image_is_pulled_from_where_anyone_may_put_one():
    """The reader's own registry must be set in kubeadm's patch; the chart refuses none."""
    unset = "set-your-registry.invalid/coterie/extender:latest"  # never resolves: RFC 2606
    assert extender(Mode.KUBEADM)["image"] == unset
