"""Pod disruption budgets."""

from __future__ import annotations

import pytest

from kube.errors import Unreadable
from kube.objects import read_budget


def budget(selector, **status):
    """A budget of the namespace `team`."""
    return read_budget(
        {
            "metadata": {"namespace": "team", "name": "few"},
            "spec": {"selector": selector},
            "status": {"disruptionsAllowed": 2, **status},
        }
    )


def expression(key, operator, *values):
    """A selector of one expression."""
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("selector", "labels", "is_covered"),
    [
        ({"matchLabels": {"app": "a"}}, {"app": "a", "x": "y"}, True),
        ({"matchLabels": {"app": "a"}}, {"app": "b"}, False),
        ({"matchLabels": {"app": "a", "tier": "b"}}, {"app": "a"}, False),
        (expression("app", "In", "a", "b"), {"app": "b"}, True),
        (expression("app", "In", "a", "b"), {"app": "c"}, False),
        (expression("app", "In", "a"), {"x": "y"}, False),
        (expression("app", "NotIn", "a"), {"app": "b"}, True),
        (expression("app", "NotIn", "a"), {"app": "a"}, False),
        (expression("app", "NotIn", "a"), {"x": "y"}, True),
        (expression("app", "Exists"), {"app": ""}, True),
        (expression("app", "Exists"), {"x": "y"}, False),
        (expression("app", "DoesNotExist"), {"x": "y"}, True),
        (expression("app", "DoesNotExist"), {"app": "a"}, False),
        ({"matchLabels": {"a": "b"}, **expression("c", "Exists")}, {"a": "b", "c": ""}, True),
        ({"matchLabels": {"a": "b"}, **expression("c", "Exists")}, {"a": "b"}, False),
        ({}, {"app": "a"}, False),
        (None, {"app": "a"}, False),
        (expression("app", "DoesNotExist"), {}, False),
    ],
)
def test_a_budget_covers_what_kube_scheduler_says_it_covers(selector, labels, is_covered):
    """An empty selector covers no pod there, nor does any selector cover a pod without labels."""
    assert budget(selector).covers("team", "p", labels) == is_covered


def test_other_namespaces_and_pods_that_leave_already_do_not_count():
    """A budget counts in its namespace; an eviction under way is counted already."""
    found = budget({"matchLabels": {"a": "b"}}, disruptedPods={"leaving": "2026-01-01T00:00:00Z"})
    assert (found.namespace, found.name, found.n_allowed) == ("team", "few", 2)
    assert found.covers("team", "p", {"a": "b"})
    assert not found.covers("other", "p", {"a": "b"})
    assert not found.covers("team", "leaving", {"a": "b"})


def test_an_unknown_operator_is_reported(check_message):
    """A guess would evict pods that a budget protects."""
    with pytest.raises(Unreadable) as caught:
        budget(expression("app", "Near"))
    check_message(caught.value)
