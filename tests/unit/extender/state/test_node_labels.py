"""Which labels of nodes are kept."""

from __future__ import annotations

from extender.state import KEPT_LABELS, PRODUCT, ZONE, domain_labels
from tests.unit.extender.feeds import live, node
from topology.groups import DEFAULT_FAMILIES


def test_kept_labels_are_known_also_where_the_node_has_them_not():
    """A node without the label of a model is excluded by a selector for one."""
    cluster = live(node("n1", labels={PRODUCT: "x"}, zone="z1"))
    labels = cluster.moment().nodes["n1"].labels
    assert labels.values == {PRODUCT: "x", ZONE: "z1"}
    assert all(labels.knows(key) for key in (*KEPT_LABELS, *domain_labels(DEFAULT_FAMILIES)))
    assert not labels.knows("disk")


def test_another_label_is_a_change_of_the_node_that_changes_no_answer():
    """What is held against it is up to date, and nothing that the verbs decide by."""
    cluster = live(node("n1", labels={PRODUCT: "x"}))
    before, views = cluster.snapshot.generation, cluster.snapshot.views
    cluster.take_freed_nodes()
    cluster.update_node(node("n1", labels={PRODUCT: "y"}))
    assert cluster.moment().nodes["n1"].labels.values[PRODUCT] == "y"
    assert (cluster.snapshot.generation, cluster.snapshot.views) == (before, views)
    assert cluster.take_freed_nodes() == frozenset()
