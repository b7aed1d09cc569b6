"""DaemonSets of the node plugin, as the chart makes them."""

from __future__ import annotations

import pytest

from kubectl_coterie.installation.daemon_sets import plugin_daemon_sets
from tests.unit.kubectl_coterie import workloads


def daemon_set(**changes):
    """The node plugin's; changes of its pods' spec."""
    content = workloads.daemon_set()
    content["spec"]["template"]["spec"] |= changes
    return content


def test_a_daemon_set_says_which_nodes_it_is_for():
    """The label of the operating system, which all nodes have, is left out."""
    content = daemon_set() | {"status": {"desiredNumberScheduled": 3}}
    (found,) = plugin_daemon_sets(content)
    assert (found.where, found.n_nodes) == ("coterie-node/coterie-plugin", 3)
    assert (found.is_reporter, found.selector) == (False, {})
    assert ("nvidia.com/gpu.present", "true") in found.any_of
    assert ("coterie.gpu/agent", "true") in found.any_of
    assert found.label_keys == {key for key, _ in found.any_of}


@pytest.mark.parametrize("arguments", [["run", "--mode=reporter"], ["run", "--mode", "reporter"]])
def test_a_reporter_is_known_by_its_settings(arguments):
    """Also where it has no pod."""
    container = {"name": "plugin", "args": arguments}
    selector = {"kubernetes.io/os": "linux", "pool": "gpu"}
    term = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}
        }
    }
    content = daemon_set(containers=[container], nodeSelector=selector, affinity=affinity)
    (found,) = plugin_daemon_sets(content)
    assert (found.n_nodes, found.is_reporter) == (0, True)
    assert (found.selector, found.any_of) == ({"pool": "gpu"}, ())
    assert found.label_keys == {"pool"}


def test_other_daemon_sets_are_passed_over():
    """A cluster has many."""
    assert list(plugin_daemon_sets(daemon_set(containers=[{"name": "other", "env": []}]))) == []
