"""A pod as the watch of pending pods shows it, where it waits for us."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from extender.pending.waiting_pod import WaitingPod
from extender.protocol import Reason, read_request
from kube.errors import Unreadable
from topology.model import object_at, objects_at, parse_object, text_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from extender.protocol import PodRequest
    from extender.rules import Rules
    from kube.objects import PodObject

__all__ = ["shown_pod"]

MAX_MESSAGE = 300
"""Characters of the scheduler's message that are kept: it lists all nodes, by reason."""


def shown_pod(pod: PodObject, rules: Rules) -> WaitingPod | None:
    """The pod, as one that was not offered; None where it is not ours, or waits for other things.

    It has no resourceVersion: each event would make another pod.
    """
    request = _request(pod, rules)
    if request is None or request.shape is None:
        return None
    content = parse_object(pod.body)
    return WaitingPod(
        pod.uid,
        pod.namespace,
        pod.name,
        Reason.NOT_OFFERED,
        _created_s(content),
        -math.inf,
        replace(request, resource_version=""),
        _message(content)[:MAX_MESSAGE],
    )


def _request(pod: PodObject, rules: Rules) -> PodRequest | None:
    """What a pod requests of us; None for every pod that is not ours, gated ones too."""
    is_away = pod.is_deleting or pod.has_ended or pod.is_gated or pod.node_name is not None
    if is_away or not any(one.encode() in pod.body for one in rules.resources):
        return None
    request = read_request(pod.body, rules.resources, rules.group_kinds)
    return request if request is not None and rules.serves(request.scheduler_name) else None


def _created_s(content: Mapping[str, object]) -> float:
    text = text_at(object_at(content, "metadata"), "creationTimestamp")
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def _message(content: Mapping[str, object]) -> str:
    """The message of the condition PodScheduled (core/v1 types.go), where it is False."""
    try:
        for one in objects_at(object_at(content, "status"), "conditions"):
            if one.get("type") == "PodScheduled" and one.get("status") == "False":
                return " ".join(text_at(one, "message").split())
    except Unreadable:
        pass
    return ""
