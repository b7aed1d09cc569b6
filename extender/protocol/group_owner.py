"""The object that says how many pods a pod's group has, for kinds whose pods do not say it.

What it answers: which object that is, by the labels of the pod, and what the group is called: kind,
name, and where the pod says it the beginning of the object's uid, so that what is created again
under one name is another group. The size is read from the object (`kube.objects.gangs`).

Keys: k8s.io/api v0.36.3 batch/v1 types.go, jobset@0336a8f api/jobset/v1alpha2/jobset_types.go (pods
of older releases lack its uid), scheduler-plugins@08079b7 apis/scheduling/v1alpha1/types.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["OWNED_KINDS", "OWNER_MARKS", "GroupOwner", "find_owner"]

_JOB_INDEX = "batch.kubernetes.io/job-completion-index"
_JOB_NAME = "batch.kubernetes.io/job-name"
_JOB_UID = "batch.kubernetes.io/controller-uid"
_JOB_SET_NAME = "jobset.sigs.k8s.io/jobset-name"
_JOB_SET_UID = "jobset.sigs.k8s.io/jobset-uid"
_POD_GROUP = "scheduling.x-k8s.io/pod-group"

JOB, JOB_SET, POD_GROUP = "indexed-job", "jobset", "coscheduling"
OWNED_KINDS = (JOB_SET, JOB, POD_GROUP)
"""A JobSet's pods are those of Indexed Jobs, too: where both are named, the JobSet is the group."""
OWNER_MARKS: Mapping[str, tuple[str, ...]] = {
    JOB: (_JOB_INDEX, _JOB_NAME, _JOB_UID),
    JOB_SET: (_JOB_SET_NAME, _JOB_SET_UID),
    POD_GROUP: (_POD_GROUP,),
}
"""Labels by which the owner is found, that which only pods of the kind have first."""
_UID_SHOWN = 8


@dataclass(frozen=True, slots=True)
class GroupOwner:
    """An object of one of `OWNED_KINDS`; `uid` is empty where its pods do not say it."""

    kind: str
    namespace: str
    name: str
    uid: str = ""

    @property
    def group_name(self) -> str:
        """What the group is called in plans."""
        return "/".join(filter(None, (self.kind, self.name, self.uid[:_UID_SHOWN])))

    @property
    def counts_all(self) -> bool:
        """Whether the size that it says counts pods without GPUs."""
        return self.kind == POD_GROUP


def find_owner(kind: str, namespace: str, labels: Mapping[str, str]) -> GroupOwner | None:
    """The owner of a kind that the labels of a pod name; None where they name none.

    >>> find_owner("coscheduling", "ns", {"scheduling.x-k8s.io/pod-group": "train"}).group_name
    'coscheduling/train'
    """
    if OWNER_MARKS[kind][0] not in labels:
        return None
    name_key, uid_key = {
        JOB: (_JOB_NAME, _JOB_UID),
        JOB_SET: (_JOB_SET_NAME, _JOB_SET_UID),
        POD_GROUP: (_POD_GROUP, ""),
    }[kind]
    name = labels.get(name_key, "")
    return GroupOwner(kind, namespace, name, labels.get(uid_key, "")) if name else None
