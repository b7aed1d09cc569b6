"""The pods of a what-if: a manifest and how many, as requests with names of their own.

It reads what a pod requests as the verbs do (`extender.protocol.parse_pod`). A pod or a controller
that Kubernetes would accept and that requests no GPU is refused: nothing would be placed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from extender.errors import MalformedPod, QueryError, UserError, WireError
from extender.protocol import WirePod, decode, parse_pod
from kube.errors import Unreadable
from kube.objects import devices_of, pinned_reason, pod_count, pod_of
from topology.errors import nearest, quote
from topology.model import object_at, text_at

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from extender.protocol import PodRequest

__all__ = ["RequestedPod", "name_pods", "read_pods"]


@dataclass(frozen=True, slots=True)
class RequestedPod:
    """A pod to place. `request` is None where it is not known what it requests.

    `assumed` says what was assumed of it, where it is not known in full; without
    `is_selector_known` its nodeSelector and node affinity are not, so that it is placed as one
    without any. `now_gbytes_per_s` is what an evicted pod has now, None where that is not known.
    """

    full_name: str
    request: PodRequest | None
    is_evicted: bool = False
    assumed: str | None = None
    is_selector_known: bool = True
    now_gbytes_per_s: float | None = None


def read_pods(
    manifest: object,
    count: int | None,
    resources: Sequence[str],
    *,
    where: str,
    group_kinds: Sequence[str] = (),
) -> tuple[RequestedPod, int]:
    """The pod of a manifest and how many of it; `name_pods` makes the single ones.

    Without a count as many as the manifest's kind says. `group_kinds` are those of whose pods a
    group is inferred. Raises `QueryError`, which names the
    manifest by `where`.
    """
    try:
        content = cast("Mapping[str, object]", pod_of(manifest))
        number = pod_count(manifest) if count is None else count
        request = parse_pod(decode(WirePod, json.dumps(content).encode()), resources, group_kinds)
        others = devices_of(content) if request.shape is None else ()
        pinned = pinned_reason(content)
    except (Unreadable, WireError, MalformedPod, UserError) as error:
        msg = f"{where}.manifest: {error}"
        raise QueryError(msg) from error
    if request.shape is None:
        named = ", ".join(resources)
        what = (
            f"none of the extender's GPUs, only {' and '.join(map(quote, others))}"
            if others
            else "no GPU"
        )
        hint = next(filter(None, (nearest(one, resources, 0.9) for one in others)), "")
        msg = f"{where}.manifest: pod {request.full_name} requests {what}, expected one of {named}"
        msg += hint
        raise QueryError(msg)
    if pinned:
        msg = f"{where}.manifest: pod {request.full_name}: {pinned}"
        raise QueryError(msg)
    if number is None:
        msg = (
            f"{where}.count is missing, expected how many pods: a DaemonSet has one on each of "
            "the nodes that it selects, and these are not known"
        )
        raise QueryError(msg)
    if number < 1:
        msg = f"{where}.manifest has 0 pods now, expected count, or replicas or parallelism above 0"
        raise QueryError(msg)
    if not request.name:
        request = replace(request, name=_generated(content) or where)
    return RequestedPod(request.full_name, request), number


def name_pods(pod: RequestedPod, number: int) -> Sequence[RequestedPod]:
    """So many pods alike, each with a name of its own; one keeps its name and uid."""
    request = pod.request
    if number == 1 or request is None:
        return (pod,)
    alike = (replace(request, uid="", name=f"{request.name}-{i}") for i in range(number))
    return [replace(pod, full_name=one.full_name, request=one) for one in alike]


def _generated(pod: Mapping[str, object]) -> str:
    return text_at(object_at(pod, "metadata"), "generateName").rstrip("-")
