"""The admission policies speak of the keys, values and users that the programs speak of."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.cluster.manifests import NAMESPACE, documents
from topology.annotations import Affinity, NicRule, Prefer, Strength
from topology.model import names

if TYPE_CHECKING:
    from enum import Enum

CHOICES: dict[str, list[Enum]] = {
    names.AFFINITY: [Affinity.NVLINK, Affinity.SWITCH, Affinity.NUMA, Affinity.NONE],
    names.POLICY: list(Strength),
    names.PREFER: list(Prefer),
    names.NIC: [NicRule.PREFERRED, NicRule.REQUIRED],
}
# Every resource whose create or update can carry a pod's annotations (registry/core/pod).
DOORS = [
    "pods",
    "pods/status",
    "pods/ephemeralcontainers",
    "pods/resize",
    "pods/binding",
    "bindings",
]


def policy(path):
    """The policy's own spec, its bindings apart."""
    return documents(path)[0]["spec"]


def variable(spec, name):
    """The expression of a variable."""
    (found,) = [one["expression"] for one in spec["variables"] if one["name"] == name]
    return found


def words(expression):
    """The quoted words of an expression, in order."""
    return re.findall(r"'([^']+)'", expression)


@pytest.mark.parametrize(
    "path", ["base/user-keys.yaml", "base/own-keys.yaml", "scheduler-name/policy.yaml"]
)
def test_policies_are_bound_and_fail_closed(path):
    """A policy without a binding does nothing, and one that fails open can be switched off."""
    policy_, binding = documents(path)
    assert binding["spec"]["policyName"] == policy_["metadata"]["name"]
    assert policy_["spec"]["failurePolicy"] == "Fail"
    assert binding["spec"].get("validationActions", ["Deny"]) == ["Deny"]


def test_values_are_those_that_the_extender_takes():
    """What is refused at creation and what filter refuses must be the same."""
    listed = re.findall(
        r"'([^']+)': \[([^\]]+)\]", variable(policy("base/user-keys.yaml"), "choices")
    )
    assert {key: words(values) for key, values in listed} == {
        key: [one.value for one in values] for key, values in CHOICES.items()
    }


def test_keys_are_all_keys():
    """A key that is added to the contract must not be refused as a typing error."""
    spec = policy("base/user-keys.yaml")
    own = (names.TOPOLOGY, names.DEVICES, names.PLAN, names.ALLOCATED, names.RETRY)
    for name, keys in (("user_keys", names.USER_KEYS), ("own_keys", own)):
        *listed, prefix = (one for one in words(variable(spec, name)))
        assert [prefix + one for one in listed] == list(keys)


def test_own_keys_are_guarded_at_every_door():
    """One door left open is enough to forge a plan."""
    spec = policy("base/own-keys.yaml")
    keys = [one for one in words(variable(spec, "changed")) if one.startswith(names.PREFIX)]
    (rule,) = spec["matchConstraints"]["resourceRules"]
    assert keys == [names.PLAN, names.ALLOCATED, names.RETRY]
    assert rule["resources"] == DOORS
    assert rule["operations"] == ["CREATE", "UPDATE"]


def test_the_writer_is_whom_rbac_lets_write():
    """The policy names the user whom the ClusterRole is bound to, nobody else."""
    (account,) = (
        binding["subjects"][0]
        for binding in documents("base/rbac.yaml")
        if binding["kind"] == "ClusterRoleBinding"
    )
    (condition,) = policy("base/own-keys.yaml")["matchConditions"]
    user = f"system:serviceaccount:{account['namespace']}:{account['name']}"
    assert account["namespace"] == NAMESPACE
    assert words(condition["expression"]) == [user]


def test_the_writer_of_a_static_pod_is_its_certificates_user():
    """A static pod has no service account: both places name the same user instead."""
    subjects, condition, _ = (
        patch["patch"] for patch in documents("kubeadm/kustomization.yaml")[0]["patches"]
    )
    (user,) = re.findall(r"kind: User, name: ([\w-]+)", subjects)
    assert words(condition) == [user]


def test_pods_go_to_the_scheduler_that_is_configured():
    """A name that no scheduler has leaves every GPU pod pending."""
    spec = policy("scheduler-name/policy.yaml")
    (mutation,) = spec["mutations"]
    assert words(mutation["applyConfiguration"]["expression"]) == ["coterie-scheduler"]
    asks = spec["matchConditions"][-1]["expression"]
    assert words(asks) == [names.DEFAULT_RESOURCE]
