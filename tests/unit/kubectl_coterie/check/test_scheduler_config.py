"""The scheduler's configuration against the extender's settings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kubectl_coterie.check.scheduler_config import check_scheduler_config
from kubectl_coterie.cluster import Read
from tests.unit.kubectl_coterie.check.looks import (
    CONFIG_MAP,
    EXTENDER,
    SCHEDULER,
    config_map,
    look,
    no_right,
)

PROFILE = {"schedulerName": "coterie-scheduler", "percentageOfNodesToScore": 100}
SERVICE = "https://coterie-extender.coterie-system.svc:8443"


def found(*, settings=None, **changes):
    """States and sentences for a configuration with these changes, and settings of the extender."""
    extender = replace(EXTENDER, settings={**EXTENDER.settings, **(settings or {})})
    seen = look(
        config_maps={CONFIG_MAP: config_map(**changes)}, programs=Read((extender, SCHEDULER))
    )
    return [(one.state.value, one.about.partition(": ")[2]) for one in check_scheduler_config(seen)]


def test_what_deploy_has_agrees():
    """The configuration of mode `second-scheduler`."""
    (finding,) = check_scheduler_config(look())
    assert (finding.state.value, finding.about) == (
        "ok",
        f"ConfigMap {CONFIG_MAP} (scheduler-config.yaml) agrees with the extender's settings",
    )


@pytest.mark.parametrize(
    ("changes", "state", "words"),
    [
        ({"profiles": [PROFILE | {"schedulerName": "gpus"}]}, "failed", "its profiles are gpus"),
        (
            {"profiles": [PROFILE | {"percentageOfNodesToScore": 50}]},
            "warning",
            "is 50, expected 100",
        ),
        ({"extenders": []}, "failed", "it has no extender"),
        ({"nodeCacheCapable": False}, "failed", "nodeCacheCapable is not true"),
        ({"ignorable": True}, "warning", "ignorable is true"),
        ({"bindVerb": ""}, "failed", "bindVerb is not set, expected bind: pods are bound without"),
        ({"bindVerb": "binding"}, "failed", "bindVerb is 'binding', a path that the extender does"),
        ({"filterVerb": None}, "failed", "filterVerb is not set, expected filter"),
        ({"filterVerb": "/filter"}, "failed", "filterVerb is '/filter'"),
        ({"prioritizeVerb": ""}, "failed", "prioritizeVerb is not set, expected prioritize"),
        ({"preemptVerb": None}, "warning", "preemptVerb is not set, expected preempt"),
        ({"preemptVerb": "evict"}, "failed", "preemptVerb is 'evict'"),
        (
            {"httpTimeout": "5s", "settings": {"http_timeout_s": "5"}},
            "warning",
            "httpTimeout is 5s, below the 30s of the chart: groups",
        ),
        (
            {"httpTimeout": None, "settings": {"http_timeout_s": "5"}},
            "warning",
            "httpTimeout is 5s, below the 30s",
        ),
        (
            {"managedResources": [{"name": "nvidia.com/gpu", "ignoredByScheduler": True}]},
            "warning",
            "ignoredByScheduler of nvidia.com/gpu is true",
        ),
        ({"managedResources": []}, "failed", "managedResources are empty"),
        ({"httpTimeout": "60s"}, "failed", "httpTimeout is 60s, http_timeout_s of the extender"),
        ({"httpTimeout": "soon"}, "failed", "httpTimeout is soon"),
        ({"urlPrefix": "http://127.0.0.1:9999"}, "failed", "urlPrefix calls port 9999"),
        ({"urlPrefix": "http://127.0.0.1:x"}, "failed", "urlPrefix calls port None"),
        ({"urlPrefix": SERVICE}, "warning", "has no caFile"),
        ({"settings": {"resources": "a.com/b"}}, "failed", "setting resources is a.com/b"),
        ({"settings": {"http_timeout_s": "9"}}, "failed", "httpTimeout is 30s"),
        ({"settings": {"scheduler_names": "a, b"}}, "failed", "scheduler_names is a, b"),
        ({"settings": {"listen_port": "$(PORT)"}}, "failed", "urlPrefix calls port 8888"),
    ],
)
def test_each_disagreement_is_found(changes, state, words):
    """One finding for each."""
    ((said, about),) = found(**changes)
    assert said == state
    assert words in about


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"httpTimeout": "30000ms"}, id="the same in other units"),
        pytest.param(
            {"urlPrefix": SERVICE, "tlsConfig": {"caFile": "/ca"}}, id="a Service has its own port"
        ),
        pytest.param(
            {
                "extenders": [
                    {"urlPrefix": "http://other"},
                    {
                        "urlPrefix": "http://127.0.0.1:8888",
                        "filterVerb": "filter",
                        "prioritizeVerb": "prioritize",
                        "preemptVerb": "preempt",
                        "bindVerb": "bind",
                        "httpTimeout": "30s",
                        "nodeCacheCapable": True,
                        "managedResources": [{"name": "nvidia.com/gpu"}],
                    },
                ]
            },
            id="an extender of another",
        ),
    ],
)
def test_what_is_the_same_is_right(changes):
    """Whatever its form."""
    assert [state for state, _ in found(**changes)] == ["ok"]


def test_settings_that_were_not_seen_have_their_defaults():
    """With an extender by its address no pod shows any."""
    seen = look(programs=Read((replace(EXTENDER, settings={}), SCHEDULER)))
    assert "http_timeout_s of the extender in coterie-system/coterie-scheduler-a 5" in "".join(
        one.about for one in check_scheduler_config(seen)
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"programs": no_right("pods")}, "cannot list", id="no right to list pods"),
        pytest.param({"programs": Read((EXTENDER,))}, "no kube-scheduler", id="no scheduler"),
        pytest.param(
            {
                "programs": Read(
                    (replace(SCHEDULER, host_paths=("/etc/coterie/scheduler-config.yaml",)),)
                )
            },
            "a file of the control-plane host",
            id="kubeadm",
        ),
        pytest.param(
            {"config_maps": {CONFIG_MAP: no_right("configmaps")}}, "cannot list", id="ConfigMap"
        ),
        pytest.param({}, "no ConfigMap", id="none holds it"),
    ],
)
def test_a_configuration_that_is_not_read_is_not_known(changes, words):
    """And how to look is said where it is a file."""
    (finding,) = check_scheduler_config(look(**{"config_maps": {}, **changes}))
    assert finding.state.value == "not known"
    assert words in finding.about
