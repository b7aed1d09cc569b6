"""Admission policies that are there and enforced."""

from __future__ import annotations

import pytest

from kubectl_coterie.check.policies import check_policies, check_scheduler_name, is_ours
from kubectl_coterie.cluster import Read
from tests.unit.kubectl_coterie.check.looks import (
    EXTENDER,
    PLUGIN,
    look,
    no_right,
    policy,
    states,
)

EXTENDERS = ("user-keys", "own-keys", "extender-rights")
OWN_KEYS = "coterie-own-keys"
FORGED = "anyone who may write pods can forge a plan"
ALL = (*EXTENDERS, "node-keys", "agent-rights")


def bound(*parts, **changes):
    """A look at these policies, each with its binding."""
    found = [policy(part) for part in parts]
    return look(**{"policies": Read(found), "bindings": Read(found), **changes})


def test_all_policies_are_there():
    """Those of the extender and those of the node plugin."""
    assert states(check_policies(bound(*ALL))) == [
        ("ok", f"5 are there and enforced: {', '.join(ALL)}")
    ]


def test_a_release_of_the_chart_has_other_names():
    """Its labels say that they are Coterie's."""
    named = [policy(part, name=f"team-coterie-{part}") for part in ALL]
    (finding,) = check_policies(look(policies=Read(named), bindings=Read(named)))
    assert finding.state.value == "ok"


@pytest.mark.parametrize(
    ("programs", "parts"),
    [
        pytest.param((EXTENDER,), EXTENDERS, id="no plugin"),
        pytest.param((PLUGIN,), ALL[3:], id="a reporter alone"),
        pytest.param((), EXTENDERS, id="no pod was found"),
    ],
)
def test_only_what_runs_needs_policies(programs, parts):
    """A reporter alone installs those of the plugin."""
    seen = bound(*parts, programs=Read(programs))
    assert [finding.state.value for finding in check_policies(seen)] == ["ok"]


def test_an_absent_policy_fails_with_its_risk():
    """The sentence says what becomes possible without it."""
    (finding,) = check_policies(bound(*ALL[:1], *ALL[2:]))
    assert states([finding]) == [
        (
            "failed",
            f"ValidatingAdmissionPolicy {OWN_KEYS} is not there: {FORGED}",
        )
    ]


def test_a_policy_without_binding_fails():
    """It has no effect."""
    seen = bound(*ALL, bindings=Read([policy(part) for part in ALL[1:]]))
    (finding,) = check_policies(seen)
    assert finding.state.value == "failed"
    assert "has no binding" in finding.about


def test_a_binding_that_does_not_deny_is_a_warning():
    """As someone may have set it to try."""
    bindings = [policy(ALL[0], actions=("Warn",)), *(policy(part) for part in ALL[1:])]
    (finding,) = check_policies(bound(*ALL, bindings=Read(bindings)))
    assert (finding.state.value, finding.todo) == (
        "warning",
        "set its validationActions to [Deny]",
    )


@pytest.mark.parametrize("lacking", ["policies", "bindings"])
def test_without_the_right_it_is_not_known(lacking):
    """Of either list."""
    (finding,) = check_policies(look(**{lacking: no_right(lacking)}))
    assert states([finding]) == [("not known", no_right(lacking).missing)]


@pytest.mark.parametrize(
    ("seen", "state", "words"),
    [
        pytest.param(look(), "ok", "sends GPU pods to Coterie", id="mutating policy"),
        pytest.param(
            bound("scheduler-name-required", mutating=Read([])),
            "ok",
            "a policy says so where GPU pods name no scheduler (Deny)",
            id="validating policy",
        ),
        pytest.param(look(mutating=Read([])), "ok", "users write", id="none"),
        pytest.param(look(mutating=no_right("m")), "not known", "cannot list", id="no right"),
        pytest.param(
            look(mutating=Read([]), bindings=no_right("b")),
            "not known",
            "cannot list",
            id="bindings",
        ),
    ],
)
def test_what_becomes_of_the_schedulers_name(seen, state, words):
    """Information: users may write it themselves."""
    (finding,) = check_scheduler_name(seen)
    assert finding.state.value == state
    assert words in finding.about


@pytest.mark.parametrize(
    ("content", "is_so"),
    [
        (policy("own-keys"), True),
        (policy("own-keys", name="x-own-keys"), True),
        ({"metadata": {"name": "other-own-keys"}}, False),
        ({"metadata": {"name": "coterie-other"}}, False),
    ],
)
def test_policies_of_others_are_not_ours(content, is_so):
    """A name alone is not enough where it is not that of the documentation."""
    assert is_ours(content) is is_so
