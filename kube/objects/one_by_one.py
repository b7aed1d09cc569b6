"""What makes the controller of a manifest create its pods one after the other.

Such pods never complete a group that waits for all of them. JobSet's keys:
api/jobset/v1alpha2/jobset_types.go, jobset@0336a8f. It makes no request and knows no pod.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topology.model import list_at, object_at, objects_at, text_at

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["one_by_one"]

_EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
_NODE_SELECTOR = "alpha.jobset.sigs.k8s.io/node-selector"


def one_by_one(manifest: Mapping[str, object], *, n_templates: int) -> str:
    """What makes a controller create members one after the other; empty where it does not.

    Of a StatefulSet (apps/v1), a LeaderWorkerSet (leaderworkerset.x-k8s.io/v1) and a JobSet whose
    members are of so many of its pod templates: those of one template may come together although
    others come before them. Raises `Unreadable`.
    """
    kind, spec = text_at(manifest, "kind"), object_at(manifest, "spec")
    if kind == "StatefulSet" and text_at(spec, "podManagementPolicy") != "Parallel":
        return "spec.podManagementPolicy is not Parallel"
    if kind == "LeaderWorkerSet" and text_at(spec, "startupPolicy") == "LeaderReady":
        has_leader = "leaderTemplate" in object_at(spec, "leaderWorkerTemplate")
        return "" if has_leader and n_templates == 1 else "spec.startupPolicy is LeaderReady"
    if kind == "JobSet":
        exclusive = _exclusive(object_at(manifest, "metadata"), spec)
        return exclusive or (_in_turn(spec) if n_templates > 1 else "")
    return ""


def _in_turn(spec: Mapping[str, object]) -> str:
    """What makes a JobSet's controller create Jobs only when others run."""
    if text_at(object_at(spec, "startupPolicy"), "startupPolicyOrder") == "InOrder":
        return "spec.startupPolicy.startupPolicyOrder is InOrder"
    for i, one in enumerate(objects_at(spec, "replicatedJobs")):
        if list_at(one, "dependsOn"):
            return f"spec.replicatedJobs[{i}] has dependsOn"
    return ""


def _exclusive(metadata: Mapping[str, object], spec: Mapping[str, object]) -> str:
    """What makes a JobSet's controller create pods of a Job only when its first one has a node."""
    if _is_exclusive(metadata):
        return f"annotation {_EXCLUSIVE} creates the pods of a Job when their first one has a node"
    for i, one in enumerate(objects_at(spec, "replicatedJobs")):
        if _is_exclusive(object_at(object_at(one, "template"), "metadata")):
            where = f"spec.replicatedJobs[{i}].template"
            return (
                f"annotation {_EXCLUSIVE} of {where} creates pods when their first one has a node"
            )
    return ""


def _is_exclusive(metadata: Mapping[str, object]) -> bool:
    annotations = object_at(metadata, "annotations")
    return _EXCLUSIVE in annotations and _NODE_SELECTOR not in annotations
