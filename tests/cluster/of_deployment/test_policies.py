"""The admission policies speak of the keys, values and users that the programs speak of."""

from __future__ import annotations

import re

import pytest

from tests.cluster.control.manifests import NAMESPACE, Mode, documents, extender_user
from topology.model import names

pytestmark = pytest.mark.cluster

# Every resource whose create or update can carry a pod's annotations (registry/core/pod).
DOORS = [
    "pods",
    "pods/status",
    "pods/ephemeralcontainers",
    "pods/resize",
    "pods/binding",
    "bindings",
]


def policy(template, *way):
    """The policy's own spec, its bindings apart."""
    return documents(template, *way)[0]["spec"]


def variable(spec, name):
    """The expression of a variable."""
    (found,) = [one["expression"] for one in spec["variables"] if one["name"] == name]
    return found


def words(expression):
    """The quoted words of an expression, in order."""
    return re.findall(r"'([^']+)'", expression)


@pytest.mark.parametrize(
    ("template", "way"),
    [
        ("rights/user-keys", "service"),
        ("rights/own-keys", "service"),
        ("rights/extender-rights", "service"),
        ("scheduler/scheduler-name", "scheduler-name"),
        ("scheduler/scheduler-name", "scheduler-name-required"),
    ],
)
def test_policies_are_bound_and_fail_closed(template, way):
    """A policy without a binding does nothing, and one that fails open can be switched off."""
    policy_, binding = documents(template, way)
    assert binding["spec"]["policyName"] == policy_["metadata"]["name"]
    assert policy_["spec"]["failurePolicy"] == "Fail"
    assert binding["spec"].get("validationActions", ["Deny"]) == ["Deny"]


def test_own_keys_are_guarded_at_every_door():
    """One door left open is enough to forge a plan."""
    spec = policy("rights/own-keys")
    keys = [one for one in words(variable(spec, "changed")) if one.startswith(names.PREFIX)]
    (rule,) = spec["matchConstraints"]["resourceRules"]
    assert keys == [names.PLAN, names.ALLOCATED, names.RETRY]
    assert rule["resources"] == DOORS
    assert rule["operations"] == ["CREATE", "UPDATE"]


def test_the_extender_has_rights_to_what_it_writes():
    """Every way to write a pod is matched, and its keys are those of the own-keys policy."""
    spec = policy("rights/extender-rights")
    (rule,) = spec["matchConstraints"]["resourceRules"]
    assert (rule["operations"], rule["resources"]) == (["*"], ["pods", "pods/*", "bindings"])
    assert words(variable(spec, "own_keys")) == [names.PLAN, names.ALLOCATED, names.RETRY]


@pytest.mark.parametrize("mode", Mode)
def test_the_writer_is_whom_rbac_lets_write(mode):
    """The policies name the user whom the ClusterRole is bound to, and no other.

    A static pod has no service account: it is its certificate's user.
    """
    (binding,) = (
        one
        for one in documents("rights/extender-rbac", mode.value)
        if one["kind"] == "ClusterRoleBinding"
    )
    (subject,) = binding["subjects"]
    user = subject["name"]
    if subject["kind"] == "ServiceAccount":
        assert subject["namespace"] == NAMESPACE
        user = f"system:serviceaccount:{NAMESPACE}:{user}"
    assert user == extender_user(mode)
    for template in ("rights/own-keys", "rights/extender-rights"):
        (condition,) = policy(template, mode.value)["matchConditions"]
        assert words(condition["expression"]) == [user]


def test_pods_go_to_the_scheduler_that_is_configured():
    """A name that no scheduler has leaves every GPU pod pending."""
    spec = policy("scheduler/scheduler-name", "scheduler-name")
    (mutation,) = spec["mutations"]
    assert words(mutation["applyConfiguration"]["expression"]) == ["coterie-scheduler"]
    condition = spec["matchConditions"][-1]["expression"]
    assert words(condition) == [names.DEFAULT_RESOURCE]
