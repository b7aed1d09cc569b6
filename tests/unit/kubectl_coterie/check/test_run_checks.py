"""All checks together."""

from __future__ import annotations

import pytest

from kubectl_coterie.check import Status, findings_json, run_checks
from kubectl_coterie.check.names import listed
from kubectl_coterie.cluster import Read
from tests.unit.kubectl_coterie.check.looks import audit, look, no_right


def test_a_right_installation_has_nothing_to_complain_of():
    """Every check says ok."""
    assert {finding.state for finding in run_checks(look())} == {Status.OK}


def test_audit_mode_has_nothing_to_complain_of():
    """No failed policy of an extender, and no advice on a scheduler that is not there."""
    findings = run_checks(audit())
    assert {finding.state for finding in findings} == {Status.OK}
    checks = {finding.check for finding in findings}
    assert not checks & {"scheduler config", "scheduler name", "certificates", "leader"}


@pytest.mark.parametrize("seen", [look(), audit(), look(mutating=Read([]))])
def test_what_is_right_needs_no_advice(seen):
    """A line of advice below it would look like a fault."""
    assert [one.todo for one in run_checks(seen) if one.state is Status.OK and one.todo] == []


def test_an_object_of_another_shape_fails_its_check_alone():
    """The others go on."""
    findings = run_checks(look(nodes=Read([{"metadata": []}])))
    failed = [finding.check for finding in findings if finding.state is Status.FAILED]
    assert failed == ["topologies", "devices"]


def test_without_any_right_nothing_fails():
    """What is not known is no fault."""
    nothing = no_right("everything")
    seen = look(
        kubernetes=nothing,
        nodes=nothing,
        pods=nothing,
        programs=nothing,
        daemon_sets=nothing,
        cluster=nothing,
        policies=nothing,
        bindings=nothing,
        mutating=nothing,
        metrics={},
        config_maps={},
    )
    findings = run_checks(seen)
    assert {finding.state for finding in findings} == {Status.NOT_KNOWN}
    assert findings_json(findings[:1]) == [
        {
            "check": "kubernetes",
            "state": "not known",
            "about": nothing.missing,
            "todo": None,
        }
    ]


@pytest.mark.parametrize(
    ("names", "text"),
    [(["a"], "node a"), (["a", "b"], "2 nodes: a, b"), (list("abcd"), "4 nodes: a, b, c, ...")],
)
def test_names_in_a_sentence_are_few(names, text):
    """A cluster may have thousands."""
    assert listed(names, "node") == text
