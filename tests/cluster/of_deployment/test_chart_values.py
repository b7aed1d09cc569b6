"""What the chart makes of its values, or the sentence by which it refuses them."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.cluster.control.chart import HelmFailed
from tests.cluster.programs.versions import chosen_helm

pytestmark = pytest.mark.cluster

SECOND = "second-scheduler"
IMAGE = ("--set", "image.registry=registry.example,image.tag=v1.0")

# The cluster's version


@pytest.mark.parametrize(
    ("cluster", "tag"),
    [
        ("v1.36.3", "v1.36.3"),
        ("v1.36.3-eks-1234567", "v1.36.3"),
        ("v1.35.4-gke.1036000", "v1.35.4"),
        ("v1.36.3+k3s1", "v1.36.3"),
        ("v1.37.0-rc.1", "v1.37.0-rc.1"),
        ("v1.34.0", "v1.34.0"),
    ],
)
def test_kube_scheduler_is_of_the_clusters_version(helm, cluster, tag):
    """Newer than the API server it may not be, and vendors' suffixes are on no image."""
    if chosen_helm() == "3" and "-rc" in cluster:
        pytest.skip("Helm 3 takes a pre-release from a cluster, and not from --kube-version")
    arguments = (*IMAGE, "--set", "mode=second-scheduler")
    (scheduler,) = (
        one["spec"]["template"]["spec"]["containers"][0]
        for one in helm.objects(*arguments, kubernetes=cluster)
        if one["kind"] == "Deployment"
    )
    assert scheduler["image"] == f"registry.k8s.io/kube-scheduler:{tag}"


def test_an_older_cluster_is_refused(helm):
    """By the chart's own field, before any template."""
    with pytest.raises(HelmFailed, match=r"chart requires kubeVersion: >=1\.34\.0-0"):
        helm.objects(*IMAGE, kubernetes="v1.33.9")


# Values


def pods(objects):
    """The pod spec of each workload, by its kind."""
    return {
        one["kind"]: one["spec"]["template"]["spec"]
        for one in objects
        if one["kind"] in {"Deployment", "DaemonSet"}
    }


def variables(container):
    """Its environment, by name."""
    return {one["name"]: one.get("value") for one in container["env"]}


def test_values_of_the_node_reach_the_plugin(helm, tmp_path):
    """MIG, time-slicing, the kubelet's authority, settings, what the pod is scheduled by."""
    values = {
        "mode": SECOND,
        "plugin": {
            "migStrategy": "mixed",
            "configMap": "sharing",
            "runtimeClassName": "nvidia",
            "kubelet": {"caConfigMap": "kubelets", "serverName": "kubelet", "rootFolder": "/data"},
            "settings": {"health_quiet_s": 120, "log_level": "debug", "access_check": False},
            "env": {"DEVICE_ID_STRATEGY": "index"},
            "nodeSelector": {"pool": "gpu"},
            "tolerations": [{"operator": "Exists"}],
            "resources": {"limits": {"memory": "1Gi"}},
            "priorityClassName": "gpu-nodes",
            "maxUnavailable": 2,
        },
        "image": {"pullSecrets": ["own"]},
        "global": {"imagePullSecrets": ["common"], "imageRegistry": "mirror.example"},
    }
    file = tmp_path / "values.yaml"
    file.write_text(json.dumps(values), encoding="utf-8")
    objects = helm.objects(*IMAGE, "-f", str(file))
    spec = pods(objects)["DaemonSet"]
    (plugin,) = spec["containers"]
    given = variables(plugin)
    assert (
        given
        | {
            "MIG_STRATEGY": "mixed",
            "NVIDIA_MIG_MONITOR_DEVICES": "all",
            "CONFIG_FILE": "/etc/coterie/config/config.yaml",
            "COTERIE_PLUGIN_KUBELET_CA": "/etc/coterie/kubelet/ca.crt",
            "COTERIE_PLUGIN_KUBELET_SERVER_NAME": "kubelet",
            "COTERIE_PLUGIN_HEALTH_QUIET_S": "120",
            "COTERIE_PLUGIN_LOG_LEVEL": "debug",
            "COTERIE_PLUGIN_ACCESS_CHECK": "false",
            "DEVICE_ID_STRATEGY": "index",
        }
        == given
    )
    assert plugin["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["SYS_ADMIN"]}
    volumes = {one["name"]: one for one in spec["volumes"]}
    assert volumes["pod-resources"]["hostPath"]["path"] == "/data/pod-resources"
    assert volumes["config"]["configMap"] == {"name": "sharing"}
    assert volumes["kubelet-ca"]["configMap"] == {"name": "kubelets"}
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "gpu"}
    assert (spec["tolerations"], spec["priorityClassName"], spec["runtimeClassName"]) == (
        [{"operator": "Exists"}],
        "gpu-nodes",
        "nvidia",
    )
    assert plugin["resources"]["limits"] == {"memory": "1Gi"}
    assert spec["imagePullSecrets"] == [{"name": "own"}, {"name": "common"}]
    for one in pods(objects).values():
        assert all(own["image"].startswith("mirror.example/") for own in one["containers"])


def test_a_privileged_plugin_is_valid(helm):
    """The API server refuses `privileged` beside a forbidden escalation."""
    serves = "mode=service,plugin.mode=device-plugin,plugin.passDeviceSpecs=true"
    objects = helm.objects(*IMAGE, *("--set", serves))
    context = pods(objects)["DaemonSet"]["containers"][0]["securityContext"]
    assert context == {
        "privileged": True,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def scraped(objects):
    """By workload, the annotations of its pods that Prometheus reads."""
    return {
        one["metadata"]["name"]: {
            key.partition("/")[2]: value
            for key, value in (one["spec"]["template"]["metadata"].get("annotations") or {}).items()
            if key.startswith("prometheus.io/")
        }
        for one in objects
        if one["kind"] in {"Deployment", "DaemonSet"}
    }


def test_pods_with_metrics_are_annotated_on_request(helm):
    """With the port of their metrics; kube-scheduler alone has none without a credential."""
    of_extender, of_plugin = (
        {"scrape": "true", "port": port, "path": "/metrics"} for port in ("8889", "8890")
    )
    asked = (*IMAGE, "--set", "monitoring.scrapeAnnotations=true")
    assert scraped(helm.objects(*asked, "--set", "mode=second-scheduler")) == {
        "coterie-scheduler": of_extender,
        "coterie-plugin": of_plugin,
    }
    assert scraped(helm.objects(*asked, "--set", "mode=service")) == {
        "coterie-scheduler": {},
        "coterie-extender": of_extender,
        "coterie-plugin": of_plugin,
    }
    assert set(map(len, scraped(helm.objects(*IMAGE, "--set", "mode=service")).values())) == {0}


def test_values_of_monitoring_reach_its_objects(helm, tmp_path):
    """What a Prometheus or Grafana selects by differs from cluster to cluster."""
    values = {
        "monitoring": {
            "podMonitor": {
                "enabled": True,
                "labels": {"release": "prometheus"},
                "interval": "1m",
                "scrapeTimeout": "20s",
            },
            "rules": {
                "enabled": True,
                "labels": {"release": "prometheus"},
                "runbooks": "https://docs.example/coterie/",
            },
            "dashboards": {
                "enabled": True,
                "labels": {"grafana_dashboard": None, "board": "yes"},
                "annotations": {"grafana_folder": "GPUs"},
            },
        },
    }
    file = tmp_path / "values.yaml"
    file.write_text(json.dumps(values), encoding="utf-8")
    arguments = (*IMAGE, "-f", str(file), "--api-versions", "monitoring.coreos.com/v1")
    made = {one["kind"]: one for one in helm.objects(*arguments)}
    monitor, rules, boards = (made[kind] for kind in ("PodMonitor", "PrometheusRule", "ConfigMap"))
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert rules["metadata"]["labels"]["release"] == "prometheus"
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert (endpoint["interval"], endpoint["scrapeTimeout"]) == ("1m", "20s")
    (group,) = rules["spec"]["groups"]
    for rule in group["rules"]:
        url = rule["annotations"]["runbook_url"]
        assert url.startswith("https://docs.example/coterie/docs/operations.md#coterie-")
    labels = boards["metadata"]["labels"]
    assert (labels["board"], "grafana_dashboard" in labels) == ("yes", False)
    assert boards["metadata"]["annotations"] == {"grafana_folder": "GPUs"}


def test_several_resources_are_the_same_everywhere(helm):
    """Scheduler, extender and policies must agree on what a GPU is."""
    objects = helm.objects(
        *(*IMAGE, "--set", "mode=second-scheduler,schedulerName.inject=true"),
        *("--set", "schedulerName.require=warn,schedulerName.name=gpus"),
        *("--set", "gpuResources={a.example/x,b.example/y}"),
    )
    (config,) = (one["data"].values() for one in objects if one["kind"] == "ConfigMap")
    (read,) = map(yaml.safe_load, config)
    names = [one["name"] for one in read["extenders"][0]["managedResources"]]
    assert names == ["a.example/x", "b.example/y"]
    (_, extender) = pods(objects)["Deployment"]["containers"]
    assert variables(extender)["COTERIE_EXTENDER_RESOURCES"] == "a.example/x,b.example/y"
    assert variables(extender)["COTERIE_EXTENDER_SCHEDULER_NAMES"] == "gpus"
    assert read["profiles"][0]["schedulerName"] == "gpus"
    text = json.dumps(objects)
    assert text.count("['a.example/x', 'b.example/y']") == 2
    assert text.count("schedulerName to gpus") == text.count("schedulerName: 'gpus'") == 1


@pytest.mark.parametrize(
    ("mode", "name"), [(SECOND, "coterie-scheduler"), ("service", "coterie-extender")]
)
def test_the_read_api_can_be_put_behind_a_proxy(helm, mode, name):
    """A Service to the pods that have the port, and one more namespace that may call it."""
    values = ["service=true", "proxyNamespace=proxies", "hosts={gpus.example}"]
    settings = ",".join(f"extender.readApi.{value}" for value in values)
    objects = helm.objects(*IMAGE, "--set", f"mode={mode},{settings}")
    (service,) = (one for one in objects if one["metadata"]["name"].endswith("-read-api"))
    selector = {"app.kubernetes.io/name": name}
    assert service["spec"]["selector"] == selector
    (port,) = service["spec"]["ports"]
    (workload,) = (
        one for one in objects if one["kind"] == "Deployment" and one["metadata"]["name"] == name
    )
    assert workload["spec"]["selector"]["matchLabels"] == selector
    extender = workload["spec"]["template"]["spec"]["containers"][-1]
    assert {"name": port["targetPort"], "containerPort": 8890} in extender["ports"]
    assert variables(extender)["COTERIE_EXTENDER_READ_ADDRESS"] == "0.0.0.0"  # noqa: S104 - for it
    hosts = variables(extender)["COTERIE_EXTENDER_READ_HOSTS"].split(",")
    name_of = service["metadata"]["name"]
    assert hosts[0] == name_of
    assert hosts[-1] == "gpus.example"
    assert all(host.startswith(f"{name_of}.") for host in hosts[1:-1])
    (policy,) = (
        one for one in objects if one["kind"] == "NetworkPolicy" and one["metadata"]["name"] == name
    )
    rule = policy["spec"]["ingress"][-1]
    assert rule["ports"] == [{"port": "read-api"}]
    (source,) = rule["from"]
    assert source["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "proxies"}


READER = "extender.readApi.readers[0]"


@pytest.mark.parametrize(
    ("mode", "namespace"),
    [(SECOND, "coterie-system"), ("service", "coterie-system"), ("kubeadm", "kube-system")],
)
def test_readers_are_bound_to_their_role(helm, mode, namespace):
    """Both are where the extender's pods are; without readers nobody is bound."""

    def rights(*more):
        objects = helm.objects(*IMAGE, "--set", f"mode={mode}", *more)
        return {one["kind"]: one for one in objects if one["metadata"]["name"] == "coterie-reader"}

    assert set(rights()) == {"Role"}
    found = rights("--set", f"{READER}.kind=Group,{READER}.name=ml-team")
    role, binding = found["Role"], found["RoleBinding"]
    assert role["metadata"]["namespace"] == binding["metadata"]["namespace"] == namespace
    assert binding["roleRef"]["name"] == "coterie-reader"
    assert binding["subjects"] == [{"kind": "Group", "name": "ml-team"}]


# Refused with a sentence

AUDIT = ("mode=audit",)
SCHEDULER = ("mode=second-scheduler",)
SERVES = (*SCHEDULER, "plugin.mode=device-plugin")
SIMULATED = (*SERVES, "plugin.profile=simulated")
OPERATOR = (*SERVES, "plugin.profile=gpu-operator")
REFUSED = [
    (("image.registry=",), "image.registry is not set: the project publishes no image"),
    (("image.registry=team/gpu",), 'image.registry is "team/gpu", whose first part "team" is no'),
    (("image.tag=",), "image.tag is not set: this chart is of a checkout"),
    ((*AUDIT, "plugin.enabled=false"), "plugin.enabled is false in mode audit"),
    ((*AUDIT, "plugin.mode=device-plugin"), "plugin.mode is device-plugin in mode audit"),
    ((*AUDIT, "schedulerName.inject=true"), "schedulerName.inject is true in mode audit"),
    ((*AUDIT, "schedulerName.require=deny"), "schedulerName.require is deny in mode audit"),
    (
        ("mode=kubeadm", "extender.settings.log_level=debug"),
        "extender.settings is set in mode kubeadm",
    ),
    (
        ("mode=kubeadm", "extender.readApi.service=true", "extender.readApi.proxyNamespace=p"),
        "extender.readApi.service is true in mode kubeadm",
    ),
    ((*SCHEDULER, "extender.tlsSecret=own"), "extender.tlsSecret or scheduler.tlsSecret is set"),
    (
        (*SCHEDULER, "schedulerName.name=default-scheduler"),
        "schedulerName.name is default-scheduler, which is the cluster's own",
    ),
    ((*AUDIT, "extender.readApi.service=true"), "extender.readApi.service is true in mode audit"),
    ((*SCHEDULER, "extender.readApi.service=true"), "extender.readApi.proxyNamespace is not set"),
    (
        (*SCHEDULER, "extender.readApi.proxyNamespace=p"),
        "extender.readApi.proxyNamespace is set without",
    ),
    ((*SCHEDULER, "extender.readApi.hosts={a.example}"), "extender.readApi.hosts is set without"),
    (
        (*AUDIT, f"{READER}.kind=User", f"{READER}.name=a"),
        "extender.readApi.readers is set in mode audit",
    ),
    (
        (*SCHEDULER, f"{READER}.kind=ServiceAccount", f"{READER}.name=a"),
        "extender.readApi.readers has ServiceAccount a without its namespace",
    ),
    (
        (*SCHEDULER, f"{READER}.kind=User", f"{READER}.name=a", f"{READER}.namespace=b"),
        "extender.readApi.readers has User a with a namespace",
    ),
    (
        (*SCHEDULER, "extender.settings.read_address=0.0.0.0"),
        "extender.settings.read_address is a setting that the chart makes",
    ),
    ((*SCHEDULER, "extender.settings.resources=x"), "extender.settings.resources is a setting"),
    ((*SCHEDULER, "plugin.settings.sysfs_root=/sys"), "plugin.settings.sysfs_root is a setting"),
    ((*SCHEDULER, "plugin.env.NODE_NAME=me"), "plugin.env.NODE_NAME is a setting that the chart"),
    ((*SCHEDULER, "scheduler.image.tag=v1.37.0"), "scheduler.image.tag is v1.37.0 and the API"),
    ((*SCHEDULER, "scheduler.image.tag=v1.34.9"), "scheduler.image.tag is v1.34.9 and the API"),
    ((*SCHEDULER, "scheduler.image.tag=latest"), 'scheduler.image.tag is "latest", which says no'),
    (("node.namespace=coterie-system",), "node.namespace is the release's own namespace"),
    (
        ("plugin.kubelet.insecure=true", "plugin.kubelet.caConfigMap=ca"),
        "plugin.kubelet.insecure is true beside",
    ),
    ((*SIMULATED, "plugin.driverRoot=/"), "plugin.driverRoot is set with plugin.profile simulated"),
    ((*SIMULATED, "plugin.migStrategy=single"), "plugin.migStrategy is single with plugin.profile"),
    ((*SIMULATED, "plugin.onlyLabelledNodes=true"), "plugin.onlyLabelledNodes is true with"),
    ((*OPERATOR, "plugin.deviceListStrategy=envvar"), "plugin.deviceListStrategy is envvar with"),
    ((*AUDIT, "plugin.passDeviceSpecs=true"), "plugin.passDeviceSpecs is true for a reporter"),
    ((*SCHEDULER, "plugin.profile=simulated"), "plugin.mode is reporter with plugin.profile sim"),
    ((*SERVES, "plugin.driverRoot=/opt"), "plugin.driverRoot is set, and"),
    (
        (*SCHEDULER, "plugin.settings.metrics_port=9000"),
        "plugin.settings.metrics_port is 9000, and",
    ),
    (
        ("monitoring.podMonitor.enabled=true",),
        "monitoring.podMonitor.enabled is true, and this API server does not serve monitoring.cor",
    ),
    (
        ("monitoring.rules.enabled=true",),
        "monitoring.rules.enabled is true, and this API server does not serve monitoring.coreos",
    ),
]


@pytest.mark.parametrize(("values", "sentence"), REFUSED, ids=lambda one: str(one)[:40])
def test_wrong_combinations_are_refused_with_a_sentence(helm, values, sentence):
    """It names the value and says what to do; each would else be found in a running cluster."""
    arguments = [word for value in values for word in ("--set", value)]
    with pytest.raises(HelmFailed) as refused:
        helm.objects(*IMAGE, *arguments)
    said = str(refused.value)
    assert f"the values cannot be installed:\n{sentence}" in said


OWN_VALUES = [
    ("env.CONFIG_FILE", "plugin.configMap"),
    ("env.COTERIE_PLUGIN_MODE", "plugin.mode"),
    ("env.DEVICE_LIST_STRATEGY", "plugin.deviceListStrategy"),
    ("env.MIG_STRATEGY", "plugin.migStrategy"),
    ("env.NVIDIA_DRIVER_ROOT", "plugin.driverRoot"),
    ("env.NVIDIA_MIG_MONITOR_DEVICES", "plugin.migStrategy"),
    ("env.PASS_DEVICE_SPECS", "plugin.passDeviceSpecs"),
    ("settings.kubelet_ca", "plugin.kubelet.caConfigMap"),
    ("settings.kubelet_insecure", "plugin.kubelet.insecure"),
    ("settings.kubelet_server_name", "plugin.kubelet.serverName"),
    ("settings.mode", "plugin.mode"),
    ("settings.simulate", "plugin.profile and plugin.simulated.machine"),
]


@pytest.mark.parametrize(("setting", "value"), OWN_VALUES)
def test_a_setting_with_a_value_of_its_own_is_refused(helm, setting, value):
    """As a variable it lacks the capability, the mount or the argument that the value makes."""
    with pytest.raises(HelmFailed) as refused:
        helm.objects(*IMAGE, "--set", "mode=second-scheduler", "--set", f"plugin.{setting}=x")
    said = f"plugin.{setting} is a setting that the chart makes: leave it out, and set {value}\n"
    assert said in str(refused.value)


@pytest.mark.parametrize("profile", ["nvidia-device-plugin", "gpu-operator"])
def test_a_reporter_has_nothing_of_what_containers_get(helm, profile):
    """These values say what the nodes are like: they stay when a plugin becomes a reporter."""
    reporter = (*IMAGE, "--set", f"mode=second-scheduler,plugin.profile={profile}")
    kept = ("--set", "plugin.driverRoot=/,plugin.deviceListStrategy=cdi-cri")
    assert helm.objects(*reporter, *kept) == helm.objects(*reporter)
    serves = ("--set", "plugin.mode=device-plugin")
    assert helm.objects(*reporter, *kept, *serves) != helm.objects(*reporter, *serves)


@pytest.mark.parametrize("mode", ["audit", SECOND, "service"])
def test_a_plugin_that_is_not_asked_to_serve_reports(helm, mode):
    """A change of mode alone must not put a second device plugin on every node."""
    (plugin,) = pods(helm.objects(*IMAGE, "--set", f"mode={mode}"))["DaemonSet"]["containers"]
    assert plugin["args"] == ["run", "--mode=reporter"]


def test_a_dot_in_the_releases_name_is_no_fault_without_a_service(helm):
    """Only a Service's name is a DNS label; the names of all other objects may have dots."""
    (first, *_) = helm.objects(*IMAGE, "--set", "mode=second-scheduler", release="my.gpus")
    assert first["metadata"]["labels"]["app.kubernetes.io/instance"] == "my.gpus"
    refused = (
        r'"my\.gpus-coterie-extender" cannot be .* Set fullnameOverride, for example to coterie'
    )
    with pytest.raises(HelmFailed, match=refused):
        helm.objects(*IMAGE, "--set", "mode=service", release="my.gpus")


def test_pods_are_not_to_be_scraped_twice(helm):
    """Each count of a counter would be there twice, under two jobs."""
    both = "monitoring.podMonitor.enabled=true,monitoring.scrapeAnnotations=true"
    with pytest.raises(HelmFailed, match="are both true: each pod would be scraped twice"):
        helm.objects(*IMAGE, "--set", both, "--api-versions", "monitoring.coreos.com/v1")


def test_a_key_without_a_value_is_no_setting(helm):
    """It is left where all lines below it are comments; Helm reads null."""
    nothing = "mode=second-scheduler,plugin.settings=null,plugin.env=null"
    assert pods(helm.objects(*IMAGE, "--set", nothing))["DaemonSet"]


def test_all_faults_are_said_at_once(helm):
    """Whoever installs corrects everything in one go."""
    with pytest.raises(HelmFailed) as refused:
        helm.objects("--set", "plugin.enabled=false")
    said = str(refused.value)
    assert "image.registry is not set" in said
    assert "plugin.enabled is false" in said


def test_without_the_policies_api_inject_is_refused(helm):
    """Below 1.36 it is off by default; the sentence names the two ways that are left."""
    arguments = (*IMAGE, "--set", "mode=second-scheduler,schedulerName.inject=true")
    with pytest.raises(HelmFailed, match=r"does not serve MutatingAdmissionPolicy.*Kyverno"):
        helm.objects(*arguments, kubernetes="v1.35.4-gke.1036000")


def test_a_misspelt_value_is_refused(helm):
    """By Helm's own reading of the schema."""
    with pytest.raises(HelmFailed, match=r"(?s)pluging.*not allowed"):
        helm.objects(*IMAGE, "--set", "pluging.enabled=false")
