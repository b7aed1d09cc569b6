"""Nodes that are added: of which machine, and under which names."""

from __future__ import annotations

import pytest

from extender.errors import QueryError
from extender.state import build_machine_type
from extender.what_if import add_nodes, find_kind, kinds_by_name, recorded_kind
from tests.unit.extender.engines import RULES, engine
from topology.recordings import load_recording


def test_a_name_means_the_machine_type_of_most_nodes():
    """With what those report; machines without a topology have none."""
    cluster = engine({"count": 3, "machine": "dgx-1-v100"}, {"count": 1, "devices": 4})
    moment = cluster.cluster.moment()
    kinds = kinds_by_name(moment)
    assert list(kinds) == ["dgx-1-v100"]
    assert kinds["dgx-1-v100"] is moment.snapshots[""].views[0].node_class


def test_a_recording_that_the_cluster_has_not_is_to_be_built():
    """None; the kind of its tables does not meet the cluster's own."""
    kinds = kinds_by_name(engine().cluster.moment())
    assert find_kind("dgx-1-v100", kinds, where="add.0") is kinds["dgx-1-v100"]
    assert find_kind("summit", kinds, where="add.0") is None
    machine = build_machine_type(load_recording("summit"), RULES.demand)
    kind = recorded_kind("summit", machine, RULES, 1)
    assert (kind.resource, kind.machine, kind.worth) == ("nvidia.com/gpu", machine, 1.0)
    assert kind.index not in {one.index for one in kinds.values()}


@pytest.mark.parametrize(
    "name",
    [
        "DGX-H10",
        "v100",
        "qqq",
    ],
    ids=["nearest names", "a part of a name", "all names"],
)
def test_an_unknown_machine_is_an_error_with_names(name, check_message):
    """What people mistype is mostly near."""
    with pytest.raises(QueryError) as caught:
        find_kind(name, {}, where="add.0")
    check_message(caught.value)


def test_names_of_new_nodes_are_free():
    """Of the cluster's nodes and of the nodes added before."""
    kinds = kinds_by_name(engine().cluster.moment())
    kind = kinds["8x-l4"]
    views = add_nodes([("8x-l4", kind, 2), ("8x-l4", kind, 1)], {"added-8x-l4-1"})
    assert [view.name for view in views] == ["added-8x-l4-0", "added-8x-l4-2", "added-8x-l4-3"]
    assert (views[0].free, views[0].ids[7]) == (0xFF, "added-8x-l4-0-gpu-7")
