"""Whether Coterie's admission policies are there and enforced, and what becomes of `schedulerName`.

The names are those of the chart, whose release gives the part before the last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubectl_coterie.check.findings import Finding, Status
from topology.errors import quote
from topology.model import list_at, object_at, text_at, texts_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kubectl_coterie.cluster import Object
    from kubectl_coterie.installation.seen import Seen

__all__ = ["check_policies", "check_scheduler_name", "is_ours"]

CHECK, NAME_CHECK = "policies", "scheduler name"
OF_EXTENDER = {
    "user-keys": "misspelled annotations of pods are accepted",
    "own-keys": "anyone who may write pods can forge a plan",
    "extender-rights": "a stolen token of the extender may change any pod",
}
OF_PLUGIN = {
    "node-keys": "anyone who may write nodes can forge a topology",
    "agent-rights": "a stolen token of a node plugin may change any node",
}
_REQUIRED, _MUTATING = "scheduler-name-required", "scheduler-name"
_PARTS = (*OF_EXTENDER, *OF_PLUGIN, _REQUIRED, _MUTATING)


def is_ours(content: Object) -> bool:
    """Whether a policy or binding is Coterie's. Raises `Unreadable`."""
    return any(_is(content, part) for part in _PARTS)


def check_policies(seen: Seen) -> Iterator[Finding]:
    """A finding for each policy that is absent or not enforced, or one that all are."""
    if seen.policies.value is None or seen.bindings.value is None:
        yield Finding(CHECK, Status.NOT_KNOWN, seen.policies.missing or seen.bindings.missing)
        return
    wanted = {
        **(OF_EXTENDER if seen.extenders or not (seen.plugins or seen.is_audit) else {}),
        **(OF_PLUGIN if seen.plugins or seen.is_audit else {}),
    }
    faults = [
        fault
        for part, risk in wanted.items()
        if (fault := _fault(part, risk, seen.policies.value, seen.bindings.value)) is not None
    ]
    yield from faults or [
        Finding(CHECK, Status.OK, f"{len(wanted)} are there and enforced: {', '.join(wanted)}")
    ]


def check_scheduler_name(seen: Seen) -> Iterator[Finding]:
    """One finding: whether a policy sends GPU pods to Coterie's scheduler; in audit mode none."""
    if seen.is_audit:
        return
    mutating = [one for one in seen.mutating.value or () if _is(one, _MUTATING)]
    required = [one for one in seen.bindings.value or () if _is(one, _REQUIRED)]
    if mutating:
        about = "a policy sends GPU pods to Coterie's scheduler"
        yield Finding(NAME_CHECK, Status.OK, about)
    elif required:
        actions = ", ".join(str(one) for one in list_at(_spec(required[0]), "validationActions"))
        about = f"a policy says so where GPU pods name no scheduler ({actions})"
        yield Finding(NAME_CHECK, Status.OK, about)
    elif seen.bindings.value is None or (seen.mutating.value is None and seen.mutating.missing):
        missing = seen.bindings.missing or seen.mutating.missing
        yield Finding(NAME_CHECK, Status.NOT_KNOWN, missing)
    else:
        about = "no policy (schedulerName.inject): users write spec.schedulerName themselves"
        yield Finding(NAME_CHECK, Status.OK, about)


def _fault(
    part: str, risk: str, policies: Sequence[Object], bindings: Sequence[Object]
) -> Finding | None:
    named = [_name(one) for one in policies if _is(one, part)]
    if not named:
        about = f"ValidatingAdmissionPolicy coterie-{part} is not there: {risk}"
        return Finding(CHECK, Status.FAILED, about, "apply the manifests again (docs/install.md)")
    bound = [one for one in bindings if text_at(_spec(one), "policyName") in named]
    if not bound:
        about = f"ValidatingAdmissionPolicy {quote(named[0])} has no binding: {risk}"
        return Finding(CHECK, Status.FAILED, about, "apply the manifests again (docs/install.md)")
    if not any("Deny" in list_at(_spec(one), "validationActions") for one in bound):
        about = f"ValidatingAdmissionPolicyBinding {quote(_name(bound[0]))} does not deny: {risk}"
        return Finding(CHECK, Status.WARNING, about, "set its validationActions to [Deny]")
    return None


def _is(content: Object, part: str) -> bool:
    """Whether it is Coterie's policy of that name, or of a release of the chart."""
    name = _name(content)
    labels = texts_at(object_at(content, "metadata"), "labels")
    is_labelled = labels.get("app.kubernetes.io/part-of") == "coterie"
    return name == f"coterie-{part}" or (is_labelled and name.endswith(f"-{part}"))


def _name(content: Object) -> str:
    return text_at(object_at(content, "metadata"), "name")


def _spec(content: Object) -> Object:
    return object_at(content, "spec")
