"""The admission policies speak of the keys, values and users that the programs speak of."""

from __future__ import annotations

import re
from textwrap import indent

import pytest

from tests.cluster.control.manifests import NAMESPACE, documents
from tests.docs.markdown import ROOT
from topology.annotations import POD_KEYS, USER_KEYS
from topology.model import names

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
    "path",
    [
        "base/user-keys.yaml",
        "base/own-keys.yaml",
        "base/extender-rights.yaml",
        "scheduler-name/policy.yaml",
    ],
)
def test_policies_are_bound_and_fail_closed(path):
    """A policy without a binding does nothing, and one that fails open can be switched off."""
    policy_, binding = documents(path)
    assert binding["spec"]["policyName"] == policy_["metadata"]["name"]
    assert policy_["spec"]["failurePolicy"] == "Fail"
    assert binding["spec"].get("validationActions", ["Deny"]) == ["Deny"]


def listed(names_):
    """A list of CEL, on lines of its own."""
    return "[" + ", ".join(f"'{name}'" for name in names_) + "]"


def key_variables():
    """The variables that hold keys and values, as YAML."""
    choices = [
        f"'{key.name}': {listed(choice.value for choice in key.choices)}"
        for key in POD_KEYS
        if key.choices
    ]
    unmatched = []
    for key in POD_KEYS:
        if key.patterns:
            value = f"variables.annotations['{key.name}']"
            match = " &&\n".join(f"{value}.matches('^(?:{one})$')" for one in key.patterns)
            unmatched.append(
                f"('{key.name}' in variables.annotations &&\n!({match}) ?\n"
                f"['annotation {key.name} is not {key.expected}']\n: [])"
            )
    expressions = {
        "user_keys": ",\n".join(listed(USER_KEYS).split(",")).replace("\n ", "\n"),
        "own_keys": ",\n".join(listed(names.OWN_KEYS).split(",")).replace("\n ", "\n"),
        "choices": "{" + ",\n".join(choices) + "}",
        "unmatched": " +\n".join(unmatched),
        "needs": "{"
        + ",\n".join(f"'{one.name}': '{one.needs}'" for one in POD_KEYS if one.needs)
        + "}",
    }
    return "".join(
        f"    - name: {name}\n      expression: >-\n{indent(text, ' ' * 8)}\n"
        for name, text in expressions.items()
    )


def test_keys_and_values_are_generated(check_golden):
    """What is refused at creation and what filter refuses must be the same."""
    path = ROOT / "deploy" / "base" / "user-keys.yaml"
    text = path.read_text(encoding="utf-8")
    before, mark, rest = text.partition("rewritten by `make golden`\n")
    _, end, after = rest.partition("    # end of pod keys\n")
    assert mark
    assert end
    check_golden(path, before + mark + key_variables() + end + after)


def test_own_keys_are_guarded_at_every_door():
    """One door left open is enough to forge a plan."""
    spec = policy("base/own-keys.yaml")
    keys = [one for one in words(variable(spec, "changed")) if one.startswith(names.PREFIX)]
    (rule,) = spec["matchConstraints"]["resourceRules"]
    assert keys == [names.PLAN, names.ALLOCATED, names.RETRY]
    assert rule["resources"] == DOORS
    assert rule["operations"] == ["CREATE", "UPDATE"]


def test_the_extender_has_rights_to_what_it_writes():
    """Every way to write a pod is matched, and its keys are those of the own-keys policy."""
    spec = policy("base/extender-rights.yaml")
    (rule,) = spec["matchConstraints"]["resourceRules"]
    assert (rule["operations"], rule["resources"]) == (["*"], ["pods", "pods/*", "bindings"])
    assert words(variable(spec, "own_keys")) == [names.PLAN, names.ALLOCATED, names.RETRY]


def test_the_writer_is_whom_rbac_lets_write():
    """The policy names the user whom the ClusterRole is bound to, and no other."""
    (account,) = (
        binding["subjects"][0]
        for binding in documents("base/rbac.yaml")
        if binding["kind"] == "ClusterRoleBinding"
    )
    user = f"system:serviceaccount:{account['namespace']}:{account['name']}"
    assert account["namespace"] == NAMESPACE
    for path in ("base/own-keys.yaml", "base/extender-rights.yaml"):
        (condition,) = policy(path)["matchConditions"]
        assert words(condition["expression"]) == [user]


def test_the_writer_of_a_static_pod_is_its_certificates_user():
    """A static pod has no service account: both places name the same user instead."""
    patches = documents("kubeadm/kustomization.yaml")[0]["patches"]
    by_kind = [(one.get("target", {}).get("kind"), one["patch"]) for one in patches]
    (subjects,) = [text for kind, text in by_kind if kind == "ClusterRoleBinding"]
    conditions = [text for kind, text in by_kind if kind == "ValidatingAdmissionPolicy"]
    (user,) = re.findall(r"kind: User, name: ([\w-]+)", subjects)
    assert [words(condition) for condition in conditions] == [[user], [user]]


def test_pods_go_to_the_scheduler_that_is_configured():
    """A name that no scheduler has leaves every GPU pod pending."""
    spec = policy("scheduler-name/policy.yaml")
    (mutation,) = spec["mutations"]
    assert words(mutation["applyConfiguration"]["expression"]) == ["coterie-scheduler"]
    condition = spec["matchConditions"][-1]["expression"]
    assert words(condition) == [names.DEFAULT_RESOURCE]
