"""Expressions over labels, as kube-scheduler compares them."""

from __future__ import annotations

import pytest

from topology.node_affinity import KnownLabels, LabelRequirement

LABELS = KnownLabels({"rack": "7"}, keys=frozenset({"rack", "row"}))


@pytest.mark.parametrize(
    ("key", "operator", "values", "holds"),
    [
        pytest.param("rack", "In", ("7", "8"), True, id="one of the values"),
        pytest.param("row", "In", ("7",), False, id="a label that the node has not"),
        pytest.param("row", "NotIn", ("7",), True, id="not one of the values where it has none"),
        pytest.param("rack", "NotIn", ("7",), False, id="one of those that it must not have"),
        pytest.param("rack", "Exists", (), True, id="there"),
        pytest.param("rack", "DoesNotExist", (), False, id="there and must not be"),
        pytest.param("row", "DoesNotExist", (), True, id="not there"),
        pytest.param("rack", "Gt", ("6",), True, id="greater as a number"),
        pytest.param("rack", "Lt", ("10",), True, id="less as a number, not as text"),
        pytest.param("rack", "Gt", ("7",), False, id="equal is not greater"),
        pytest.param("row", "Gt", ("6",), False, id="a label without a value is no number"),
        pytest.param("rack", "Lt", (), False, id="nothing to compare with"),
        pytest.param("rack", "Near", ("7",), False, id="an operator that is not known"),
        pytest.param("zone", "Exists", (), None, id="a label of which nothing is known"),
    ],
)
def test_an_expression_holds_by_the_nodes_label(key, operator, values, holds):
    """What the node has under the key decides; unknown is not false."""
    assert LabelRequirement(key, operator, values).holds("n1", LABELS) is holds


def test_a_field_is_the_nodes_name():
    """metadata.name is the one field that the API server takes."""
    requirement = LabelRequirement("metadata.name", "In", ("n1",), is_field=True)
    assert requirement.holds("n1", KnownLabels()) is True
    assert requirement.holds("n2", KnownLabels()) is False


def test_a_label_more_is_known():
    """Where all labels are known, all stay known."""
    assert LABELS.plus("zone", "a").knows("zone")
    assert KnownLabels({}, keys=None).plus("zone", "a").knows("any")
