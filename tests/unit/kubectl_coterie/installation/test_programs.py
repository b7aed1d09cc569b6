"""Coterie's programs in pods, as the chart makes them."""

from __future__ import annotations

import pytest
import yaml

from kubectl_coterie.installation import Kind, programs_of
from tests.docs.markdown import ROOT
from tests.unit.kubectl_coterie.workloads import EXTENDER, SCHEDULER, daemon_set, scheduler_pod

PATCH = ROOT / "deploy" / "kubeadm" / "patches" / "kube-scheduler1+strategic.yaml"
LABELS = {"app.kubernetes.io/part-of": "coterie"}


def kubeadm():
    """What deploy/kubeadm adds to kube-scheduler's static pod."""
    text = PATCH.read_text(encoding="utf-8")
    return yaml.safe_load(text)["spec"]


def plugin_pod():
    """The spec of the node plugin's pods."""
    return daemon_set()["spec"]["template"]["spec"]


def pod(spec, *, labels=LABELS, statuses=(), changes=None):
    """A pod with that spec."""
    return {
        "metadata": {"namespace": "ns", "name": "pod", "labels": labels},
        "spec": spec | {"nodeName": "n"} | (changes or {}),
        "status": {"phase": "Running", "containerStatuses": list(statuses)},
    }


@pytest.mark.parametrize(
    ("spec", "labels", "kinds"),
    [
        (scheduler_pod(), LABELS, [Kind.SCHEDULER, Kind.EXTENDER]),
        (scheduler_pod(EXTENDER), LABELS, [Kind.EXTENDER]),
        (scheduler_pod(SCHEDULER), LABELS, [Kind.SCHEDULER]),
        (kubeadm(), {"component": "kube-scheduler"}, [Kind.SCHEDULER, Kind.EXTENDER]),
        (plugin_pod(), LABELS, [Kind.PLUGIN]),
        (plugin_pod(), {}, []),
        (scheduler_pod(SCHEDULER), {"component": "kube-scheduler"}, []),
    ],
)
def test_programs_are_known_in_each_way(spec, labels, kinds):
    """A kube-scheduler without an extender, and a plugin of another, are not Coterie's."""
    assert [program.kind for program in programs_of(pod(spec, labels=labels))] == kinds


def test_a_program_says_how_it_is_set():
    """Settings, ports, volumes, and whether it runs."""
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    statuses = [
        {"name": "kube-scheduler", "ready": True, "restartCount": 2},
        {"name": "extender", "ready": False, "state": waiting},
    ]
    scheduler, extender = programs_of(pod(scheduler_pod(), statuses=statuses))
    assert extender.where == "ns/pod"
    assert extender.settings["http_timeout_s"] == "30"
    assert extender.ports == {"health": 8889, "read-api": 8890}
    assert extender.secrets == ("coterie-extender-token",)
    assert (extender.is_ready, extender.waits) == (
        False,
        "ImagePullBackOff: no such image",
    )
    assert (scheduler.is_ready, scheduler.restarts, scheduler.waits) == (True, 2, "")


def test_volumes_name_configuration_and_host_paths():
    """By them the scheduler's configuration is found."""
    (scheduler,) = programs_of(pod(scheduler_pod(SCHEDULER)))
    assert scheduler.config_maps == ("coterie-scheduler-config",)
    (plugin,) = programs_of(pod(plugin_pod()))
    assert "/sys" in plugin.host_paths


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        (["run", "--mode=reporter"], {"mode": "reporter"}),
        (["run", "--mode", "reporter"], {"mode": "reporter"}),
        (["--events=all", "--quiet", "--http-timeout-s", "9"], None),
        (["--last"], {}),
    ],
)
def test_flags_are_above_the_environment(arguments, settings):
    """In both forms; a flag without a value has none."""
    container = {"name": "plugin", "args": arguments}
    (plugin,) = programs_of(pod(plugin_pod(), changes={"containers": [container]}))
    wanted = {"events": "all", "http_timeout_s": "9"} if settings is None else settings
    assert plugin.settings == wanted
    assert plugin.is_reporter is (settings is not None and "mode" in settings)


def test_a_pod_that_ends_is_not_ready():
    """Its containers may still say so."""
    ending = pod(plugin_pod(), statuses=[{"name": "plugin", "ready": True}])
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    (plugin,) = programs_of(ending)
    assert not plugin.is_ready


def test_why_a_container_waits_may_have_no_message():
    """As while it is created."""
    state = {"waiting": {"reason": "ContainerCreating"}}
    (plugin,) = programs_of(pod(plugin_pod(), statuses=[{"name": "plugin", "state": state}]))
    assert plugin.waits == "ContainerCreating"


def test_a_scheduler_is_known_by_its_command():
    """Whatever its container is called."""
    container = {"name": "main", "command": ["/usr/bin/kube-scheduler"]}
    changed = {"containers": [container]}
    (program,) = programs_of(pod(scheduler_pod(SCHEDULER), changes=changed))
    assert program.kind is Kind.SCHEDULER
