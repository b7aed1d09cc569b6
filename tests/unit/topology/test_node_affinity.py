"""A pod's nodeSelector and required node affinity where not all labels of a node are known."""

from __future__ import annotations

from itertools import product

import pytest

from topology.node_affinity import ANY_NODE, KnownLabels, LabelRequirement, RequiredNodeAffinity

LABELS = KnownLabels({"gpu": "h100"}, frozenset({"gpu", "zone"}))
HOLDS = LabelRequirement("gpu", "Exists", ())
FAILS = LabelRequirement("zone", "Exists", ())
OPEN = LabelRequirement("disk", "In", ("ssd",))


@pytest.mark.parametrize(
    ("affinity", "expected"),
    [
        pytest.param(ANY_NODE, True, id="nothing is required"),
        pytest.param(RequiredNodeAffinity((("gpu", "h100"),)), True, id="the label"),
        pytest.param(RequiredNodeAffinity((("gpu", "l4"),)), False, id="another value"),
        pytest.param(RequiredNodeAffinity((("zone", "a"),)), False, id="known to be absent"),
        pytest.param(RequiredNodeAffinity((("disk", "ssd"),)), None, id="not known"),
        pytest.param(
            RequiredNodeAffinity((("disk", "ssd"), ("gpu", "l4"))), False, id="one fails for sure"
        ),
        pytest.param(RequiredNodeAffinity(terms=((HOLDS, OPEN),)), None, id="unknown expression"),
        pytest.param(RequiredNodeAffinity(terms=((FAILS, OPEN),)), False, id="a term that fails"),
        pytest.param(RequiredNodeAffinity(terms=((OPEN,), (HOLDS,))), True, id="a term that holds"),
        pytest.param(RequiredNodeAffinity(terms=((OPEN,), (FAILS,))), None, id="a term may hold"),
        pytest.param(RequiredNodeAffinity((("disk", "x"),), ()), False, id="no term"),
        pytest.param(RequiredNodeAffinity((("disk", "x"),), ((HOLDS,),)), None, id="selector"),
        pytest.param(
            RequiredNodeAffinity(
                terms=((LabelRequirement("metadata.name", "In", ("n1",), is_field=True),),)
            ),
            True,
            id="the name is always known",
        ),
    ],
)
def test_unknown_is_neither_yes_nor_no(affinity, expected):
    """An answer is unknown only where labels that are not known decide it."""
    assert affinity.allows("n1", LABELS) is expected


@pytest.mark.parametrize("values", list(product((True, False), repeat=3)))
def test_an_answer_holds_for_every_value_of_what_is_unknown(values):
    """What is said for sure is so whichever labels the node has."""
    named = dict(zip(("a", "b", "c"), values, strict=True))
    a, b, c = (LabelRequirement(key, "Exists", ()) for key in named)
    whole = KnownLabels({key: "x" for key, has in named.items() if has}, None)
    for affinity in (
        RequiredNodeAffinity((("a", "x"),), ((b, c), (c,))),
        RequiredNodeAffinity((), ((a, b), (LabelRequirement("c", "NotIn", ("x",)),))),
    ):
        for known in ({"a"}, {"b", "c"}, {"a", "c"}, set(named)):
            part = KnownLabels(
                {key: value for key, value in whole.values.items() if key in known},
                frozenset(known),
            )
            assert affinity.allows("n", part) in {None, affinity.allows("n", whole)}


def test_the_labels_that_it_names():
    """Fields are no labels."""
    field = LabelRequirement("metadata.name", "In", ("n1",), is_field=True)
    assert RequiredNodeAffinity((("a", "1"),), ((HOLDS, field), (OPEN,))).keys == {
        "a",
        "disk",
        "gpu",
    }
    assert ANY_NODE.keys == frozenset()


def test_its_size_is_known_before_it_is_held():
    """A manifest may have thousands of expressions and values."""
    affinity = RequiredNodeAffinity((("a", "1"),), ((HOLDS, OPEN), (OPEN,)))
    assert (affinity.n_expressions, affinity.n_values) == (4, 2)
    assert (ANY_NODE.n_expressions, ANY_NODE.n_values) == (0, 0)


def test_a_label_that_is_learned_is_known():
    """Beside those that were."""
    more = LABELS.plus("disk", "ssd")
    assert RequiredNodeAffinity((("disk", "ssd"),)).allows("n1", more) is True
    assert KnownLabels({}, None).plus("a", "b") == KnownLabels({"a": "b"}, None)
