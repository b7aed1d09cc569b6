"""kube-scheduler's configuration is consistent in all modes, and agrees with the extender's."""

from __future__ import annotations

import itertools
from urllib.parse import urlsplit

import pytest
import yaml

from tests.cluster.control.manifests import (
    Mode,
    documents,
    extender_settings,
    scheduler_config,
    shipped_config,
)
from topology.model import DEFAULT_RESOURCE

pytestmark = pytest.mark.cluster

NAME = "coterie-scheduler"
WEIGHT = 150
BLOCK = {
    "filterVerb": "filter",
    "prioritizeVerb": "prioritize",
    "preemptVerb": "preempt",
    "bindVerb": "bind",
    "weight": WEIGHT,
    "httpTimeout": "30s",
    "nodeCacheCapable": True,
    "ignorable": False,
    "managedResources": [{"name": DEFAULT_RESOURCE, "ignoredByScheduler": False}],
}
IN_TREE = (3, 2, 2, 2, 2, 1, 1, 1)  # pkg/scheduler/apis/config/v1/default_plugins.go of v1.36.3


def config(mode):
    """The configuration as it is installed."""
    return yaml.safe_load(shipped_config(mode))


@pytest.mark.parametrize("mode", Mode)
def test_extender_block_is_the_designs(mode):
    """One wrong field makes the scheduler ignore us silently: every field is held."""
    (extender,) = config(mode)["extenders"]
    assert {
        key: extender[key] for key in extender if key not in {"urlPrefix", "tlsConfig"}
    } == BLOCK


@pytest.mark.parametrize("mode", Mode)
def test_the_status_of_waiting_pods_does_not_stop_the_loop(mode):
    """kube-scheduler's default of 50 requests a second would, beside some hundred of them."""
    connection = config(mode)["clientConnection"]
    assert (connection["qps"], connection["burst"]) == (2000, 4000)


def test_weight_is_what_its_comment_says():
    """A plugin's score counts 100 x its weight, ours 10 x weight for each level."""
    level = 10 * WEIGHT
    assert level == 1500
    assert level > 100 * sum(IN_TREE) == 1400


@pytest.mark.parametrize("mode", Mode)
def test_only_gpu_pods_have_all_nodes_looked_at(mode):
    """Below 100 % a required pod can fail though a node fits; for other pods it is wasted work."""
    shares = {
        one["schedulerName"]: one.get("percentageOfNodesToScore")
        for one in config(mode)["profiles"]
    }
    others = {"default-scheduler": None} if mode is Mode.KUBEADM else {}
    assert shares == {NAME: 100} | others


@pytest.mark.parametrize("mode", Mode)
def test_only_verified_tls_leaves_the_pods_own_network(mode):
    """Without caFile kube-scheduler would check no certificate, silently."""
    (extender,) = config(mode)["extenders"]
    url = urlsplit(extender["urlPrefix"])
    if mode is Mode.SECOND_SCHEDULER:
        assert (url.scheme, url.hostname) == ("http", "127.0.0.1")
    else:
        assert url.scheme == "https"
        assert extender["tlsConfig"].keys() == {"caFile", "certFile", "keyFile"}
        assert "enableHTTPS" not in extender


@pytest.mark.parametrize("mode", Mode)
def test_scheduler_and_extender_are_settings_the_same(mode):
    """Port, timeout, resources and profiles stand in two files, and must agree."""
    (extender,) = config(mode)["extenders"]
    settings = extender_settings(mode)
    assert settings["listen_port"] == str(urlsplit(extender["urlPrefix"]).port)
    assert f"{settings['http_timeout_s']}s" == extender["httpTimeout"]
    assert settings["resources"].split(",") == [one["name"] for one in extender["managedResources"]]
    profiles = [one["schedulerName"] for one in config(mode)["profiles"]]
    assert settings["scheduler_names"].split(",") == profiles


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(Mode, 2)))
def test_modes_differ_only_in_who_and_where(one, other):
    """A value tuned in one mode and forgotten in another would be found by users only."""

    def common(mode):
        read = config(mode)
        read["clientConnection"].pop("kubeconfig", None)
        return {
            key: value
            for key, value in read.items()
            if key not in {"leaderElection", "profiles", "extenders"}
        }

    assert common(one) == common(other)


@pytest.mark.parametrize("mode", Mode)
def test_tests_replace_addresses_only(mode, tmp_path):
    """What the cluster tests run must be what is shipped."""
    made = yaml.safe_load(scheduler_config(mode, "https://there:1", kubeconfig=tmp_path))
    shipped = config(mode)
    shipped["extenders"][0]["urlPrefix"] = "https://there:1"
    shipped["clientConnection"]["kubeconfig"] = str(tmp_path)
    assert made == shipped


@pytest.mark.parametrize("mode", [Mode.SECOND_SCHEDULER, Mode.SERVICE])
def test_second_schedulers_have_a_lease_of_their_own(mode):
    """With the cluster's own lease two schedulers would never work side by side."""
    (role,) = [
        one for one in documents("rights/scheduler-rbac", mode.value) if one["kind"] == "Role"
    ]
    election = config(mode)["leaderElection"]
    assert election["leaderElect"]
    assert role["rules"][0]["resourceNames"] == [election["resourceName"]]
    assert role["metadata"]["namespace"] == election["resourceNamespace"]
