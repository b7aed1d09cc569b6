"""The node plugin's pods, and DaemonSets that choose no node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kubectl_coterie.check.plugins import check_plugins
from kubectl_coterie.cluster import Read
from kubectl_coterie.installation.daemon_sets import PluginDaemonSet
from tests.unit.kubectl_coterie.check.looks import (
    EXTENDER,
    PLUGIN,
    audit,
    look,
    no_right,
    node,
)

CLIENT = "nvidia.com/gpu.deploy.client"
VALIDATOR = "nvidia.com/gpu.deploy.operator-validator"
ANY = (("nvidia.com/gpu.present", "true"), ("coterie.gpu/agent", "true"))


@pytest.mark.parametrize(
    ("programs", "state"),
    [
        (Read((PLUGIN,)), "ok"),
        (Read((EXTENDER,)), "warning"),
        (no_right("pods"), "not known"),
        (Read((replace(PLUGIN, is_ready=False),)), "failed"),
    ],
)
def test_the_node_plugins_pods_are_counted(programs, state):
    """Without one nothing publishes topologies."""
    (finding,) = check_plugins(look(programs=programs))
    assert finding.state.value == state


def chosen(*, n_nodes=0, labels=None, nodes=None, **changes):
    """The findings about a DaemonSet, whose pods are those that it has."""
    daemon_set = PluginDaemonSet(
        "coterie-node", "coterie-plugin", n_nodes, is_reporter=True, **changes
    )
    labelled = node()
    labelled["metadata"]["labels"] = labels or {}
    seen = audit(
        programs=Read(()),
        daemon_sets=Read([daemon_set]),
        nodes=nodes or Read([labelled]),
    )
    return list(check_plugins(seen))


@pytest.mark.parametrize(
    ("changes", "about", "todo"),
    [
        pytest.param(
            {"selector": {CLIENT: "true", VALIDATOR: "true"}, "labels": {VALIDATOR: "true"}},
            f"no node has label {CLIENT}=true",
            "plugin.gpuOperator.clientLabel to nvidia.com/gpu.deploy.gpu-feature-discovery",
            id="an operator before v26.7",
        ),
        pytest.param(
            {"selector": {CLIENT: "true"}, "labels": {CLIENT: "paused"}},
            f"no node has label {CLIENT}=true",
            "clientLabel",
            id="another value",
        ),
        pytest.param(
            {"selector": {VALIDATOR: "true"}},
            f"no node has label {VALIDATOR}=true",
            "plugin.profile to nvidia-device-plugin",
            id="no operator",
        ),
        pytest.param(
            {"selector": {"pool": "gpu"}},
            "no node has label pool=gpu",
            "kubectl label node NODE pool=gpu",
            id="a label of one's own",
        ),
        pytest.param(
            {"any_of": ANY},
            "no node has any of the labels nvidia.com/gpu.present=true, coterie.gpu/agent=true",
            "on each GPU node: kubectl label node NODE coterie.gpu/agent=true",
            id="none of several",
        ),
        pytest.param(
            {"any_of": (("coterie.gpu/simulated", "true"),)},
            "no node has any of the labels coterie.gpu/simulated=true",
            "kubectl label node NODE coterie.gpu/simulated=true",
            id="simulated",
        ),
        pytest.param(
            {"any_of": (("pool", "gpu"),)},
            "no node has any of the labels pool=gpu",
            "set one of them on each GPU node",
            id="a patched affinity",
        ),
        pytest.param(
            {"any_of": ANY, "labels": {"coterie.gpu/agent": "true"}},
            "only taints that it tolerates",
            "kubectl -n coterie-node describe daemonset coterie-plugin",
            id="taints",
        ),
        pytest.param(
            {"any_of": ANY[:1], "nodes": no_right("nodes")},
            "DaemonSet coterie-node/coterie-plugin chooses no node (DESIRED is 0)",
            "it is for nodes with labels of these: nvidia.com/gpu.present=true",
            id="no right to list nodes",
        ),
    ],
)
def test_a_daemon_set_for_no_node_says_which_label_is_missing(changes, about, todo):
    """Its rollout succeeds without a pod, so that nothing else says it."""
    (finding,) = chosen(**changes)
    assert finding.state.value == "warning"
    assert about in finding.about
    assert todo in finding.todo


def test_a_daemon_set_that_chooses_nodes_is_not_spoken_of():
    """Its pods are."""
    (finding,) = chosen(n_nodes=2)
    assert finding.about.startswith("no pod of the node plugin was found")
