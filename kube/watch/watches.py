"""The collections that the extender keeps up to date.

Says what is listed and watched, and in which form. The form saves bytes: a pod's metadata are a
fraction of the pod (docs/adr/0007-watches.md), and selectors act on the whole object at the server,
so that a pod which ends leaves the collection without its status ever being sent.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kube.objects import NodeFacts, PodFacts, PodObject, pod_facts_reader, read_node, read_pod
from kube.watch.reflector import Source

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["assigned_pods", "nodes", "nominated_pods", "pending_pods"]


_NOT_ENDED = "status.phase!=Succeeded,status.phase!=Failed"


def nodes(label_keys: Sequence[str] = (), selector_keys: Sequence[str] = ()) -> Source[NodeFacts]:
    """All nodes, whole: `status.allocatable` is not in the metadata.

    `label_keys` are the labels of the network domains that are kept, `selector_keys` those that
    selectors of pods usually name.
    """
    read = partial(read_node, label_keys=tuple(label_keys), selector_keys=tuple(selector_keys))
    return Source("nodes", "/api/v1/nodes", read, page_size=250)


def assigned_pods(resources: Sequence[str], group_marks: Sequence[str] = ()) -> Source[PodFacts]:
    """The metadata of all pods that have a node and have not ended; `resources` that we place.

    `group_marks` are the labels and annotations by which a pod without them is found in its group.
    """
    return Source(
        "assigned_pods",
        "/api/v1/pods",
        pod_facts_reader(tuple(resources), tuple(group_marks)),
        field_selector=f"spec.nodeName!=,{_NOT_ENDED}",
        is_metadata=True,
        page_size=500,
    )


def pending_pods(scheduler: str = "", *, is_one_of_several: bool = False) -> Source[PodObject]:
    """Pods without a node, whole: members of a group wait until all of them are there.

    With a `scheduler` those that name it: a selector has no "or", so that each scheduler has a
    watch, with its name where it `is_one_of_several`.
    """
    own = f"spec.schedulerName={_escaped(scheduler)}," if scheduler else ""
    return Source(
        f"pending_pods/{scheduler}" if is_one_of_several else "pending_pods",
        "/api/v1/pods",
        read_pod,
        field_selector=f"{own}spec.nodeName=,{_NOT_ENDED}",
    )


def nominated_pods() -> Source[PodObject]:
    """Pods that are nominated to a node, whole: what they request counts as claimed there."""
    return Source(
        "nominated_pods",
        "/api/v1/pods",
        read_pod,
        field_selector=f"spec.nodeName=,status.nominatedNodeName!=,{_NOT_ENDED}",
    )


def _escaped(value: str) -> str:
    """A value in a field selector (apimachinery, fields.EscapeValue); it may hold anything."""
    return value.replace("\\", r"\\").replace(",", r"\,").replace("=", r"\=")
