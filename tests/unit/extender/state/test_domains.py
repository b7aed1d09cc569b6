"""Where nodes are in the network, by the labels that the settings name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.engine import Engine, Gateway
from extender.engine.events import NodeDeleted, NodeUpdated, RequeueDue
from extender.state import LiveCluster, domain_labels
from kube.errors import SettingsError
from tests.unit.extender.engines import RULES
from tests.unit.extender.feeds import bare
from tests.unit.extender.pods import GPU
from topology.value import DEFAULT_DEMAND

ZONE = "topology.kubernetes.io/zone"


def test_a_label_of_the_setting_is_a_level_below_the_zone():
    """A site with labels of its own needs no other program."""
    rules = replace(RULES, group_levels=(("leaf", "example.com/rack"),))
    families = rules.group_families
    assert {"example.com/rack", ZONE} < set(domain_labels(families))
    cluster = LiveCluster((GPU,), demand=DEFAULT_DEMAND, families=families)
    for name, rack in (("n1", "r1"), ("n2", "r1"), ("n3", "r2")):
        labels = {"example.com/rack": rack, ZONE: "z"}
        labels["network.topology.nvidia.com/leaf"] = "other"
        cluster.update_node(bare(name, domains=labels))
    path = cluster.domains.path("n1")
    assert path is not None
    assert [(step.level, step.value) for step in path.steps] == [("leaf", "r1"), ("zone", "z")]
    tree = cluster.domains.tree
    index = tree.level_index("leaf")
    assert index is not None
    leaves = tree.levels[index]
    assert sorted(tree.domains[i].end - tree.domains[i].first for i in leaves.domains) == [1, 2]
    cluster.delete_node("n3")
    assert (cluster.domains.path("n3"), cluster.domains.tree.node_names) == (None, ("n1", "n2"))


def test_the_tree_is_there_before_the_first_group():
    """It takes longer than a plan, so a plan must not begin with it."""
    cluster = LiveCluster((GPU,), demand=DEFAULT_DEMAND)
    gateway = Gateway(Engine(cluster, RULES))
    for n_nodes in (1, 2):
        gateway.handle(NodeUpdated(bare(f"n{n_nodes}")))
        gateway.handle(RequeueDue(0.0))
        assert cluster.domains.is_prepared
        assert len(cluster.domains.tree.node_names) == n_nodes
    gateway.handle(NodeDeleted("n1"))
    assert not cluster.domains.is_prepared


def test_levels_without_a_common_order_are_no_rules(check_message):
    """A decision log cannot hold them."""
    levels = (("spine", "row"), ("leaf", "rack"))
    with pytest.raises(SettingsError) as caught:
        replace(RULES, group_levels=levels)
    check_message(caught.value)
