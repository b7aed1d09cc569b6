"""Where a pod's own rules allow it: node selector, required node affinity, taints."""

import pytest

from topology.audit.cluster import NodeRules, allows
from topology.node_affinity import LabelRequirement
from topology.taints import Taint, Toleration

LABELS = {"gpu": "h100", "generation": "9"}
TAINT = Taint("gpu", "only", "NoSchedule")


def is_allowed(rules, *, taints=()):
    """Whether rules allow a pod on the node of these tests."""
    return allows(rules, name="n1", labels=LABELS, taints=taints)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        pytest.param(NodeRules(), True, id="no rules allow every node"),
        pytest.param(NodeRules(selector=(("gpu", "h100"),)), True, id="selector holds"),
        pytest.param(NodeRules(selector=(("gpu", "l4"),)), False, id="selector of another value"),
        pytest.param(NodeRules(selector=(("zone", "a"),)), False, id="selector of no label"),
        pytest.param(NodeRules(terms=()), False, id="no term matches nothing"),
        pytest.param(NodeRules(terms=((),)), False, id="an empty term matches nothing"),
    ],
)
def test_selector_and_terms(rules, expected):
    """kube-scheduler reads them so."""
    assert is_allowed(rules) is expected


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        pytest.param(LabelRequirement("gpu", "In", ("l4", "h100")), True, id="in"),
        pytest.param(LabelRequirement("gpu", "In", ("l4",)), False, id="in others"),
        pytest.param(LabelRequirement("gpu", "NotIn", ("h100",)), False, id="not in"),
        pytest.param(LabelRequirement("zone", "NotIn", ("a",)), True, id="not in, label absent"),
        pytest.param(LabelRequirement("gpu", "Exists", ()), True, id="exists"),
        pytest.param(LabelRequirement("zone", "Exists", ()), False, id="exists, label absent"),
        pytest.param(LabelRequirement("gpu", "DoesNotExist", ()), False, id="does not exist"),
        pytest.param(LabelRequirement("generation", "Gt", ("8",)), True, id="greater"),
        pytest.param(LabelRequirement("generation", "Lt", ("8",)), False, id="less"),
        pytest.param(LabelRequirement("gpu", "Gt", ("8",)), False, id="greater than a word"),
        pytest.param(LabelRequirement("zone", "Gt", ("8",)), False, id="greater, label absent"),
        pytest.param(LabelRequirement("generation", "Gt", ()), False, id="greater than nothing"),
        pytest.param(LabelRequirement("generation", "Near", ("9",)), False, id="unknown operator"),
        pytest.param(
            LabelRequirement("metadata.name", "In", ("n1",), is_field=True), True, id="name"
        ),
        pytest.param(
            LabelRequirement("metadata.name", "In", ("n2",), is_field=True), False, id="other name"
        ),
    ],
)
def test_operators(requirement, expected):
    """Each operator of a node selector, also where the label is absent."""
    assert is_allowed(NodeRules(terms=((requirement,),))) is expected


def test_terms_are_alternatives_and_all_expressions_of_one_hold():
    """As k8s.io/api says of nodeSelectorTerms and matchExpressions."""
    holds, fails = LabelRequirement("gpu", "Exists", ()), LabelRequirement("zone", "Exists", ())
    assert is_allowed(NodeRules(terms=((fails,), (holds,))))
    assert not is_allowed(NodeRules(terms=((holds, fails),)))


def test_a_taint_keeps_off_what_does_not_tolerate_it():
    """Rules of `topology.taints`."""
    assert not is_allowed(NodeRules(), taints=(TAINT,))
    assert is_allowed(
        NodeRules(tolerations=(Toleration("gpu", "Exists", "", ""),)), taints=(TAINT,)
    )
