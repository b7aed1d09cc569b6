"""Explanations of the extender, for the tests of this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kubectl_coterie.terminal import Style
from kubectl_coterie.text import explanation_lines

if TYPE_CHECKING:
    from extender.protocol import Reason

PLAIN = Style(is_on=False)
REQUEST = {
    "resource": "nvidia.com/gpu",
    "size_gpus": 4,
    "containers": [{"name": "main", "size": 4, "role": "app"}],
    "affinity": "nvlink",
    "policy": "required",
    "min_bandwidth_gbytes_per_s": None,
    "prefer": "balanced",
    "nic": "unset",
}


def group(
    reason: Reason, n: int, machines: str, nearest: dict[str, Any] | None = None, **words: str
) -> Any:
    """A reason of a summary."""
    return {
        "reason": reason.value,
        "reason_label": reason.label,
        "reason_short": reason.short(),
        "lacks": None,
        "sentence": f"{reason.value} ({machines})",
        "n": n,
        "nearest": nearest,
    } | words


def offer(node: str, *gpus: int, rate: float | None = 48.0, share: float | None = 1.0) -> Any:
    """A node's set."""
    return {"node": node, "gpus": list(gpus), "gbytes_per_s": rate, "share": share}


def answer(*groups: Any, n_nodes: int = 40, request: Any = None, change: Any = None) -> Any:
    """An explanation of a pod that fits nowhere."""
    summary = {"n_nodes": n_nodes, "n_fit": 0, "groups": list(groups), "try": change}
    return {
        "pod": "ml/train-0",
        "uid": "u",
        "generation": 1,
        "warnings": [],
        "request": REQUEST | (request or {}),
        "unschedulable": {"since_s": 1000.0},
        "summary": summary | {"runner_up": None, "runner_up_set": None},
        "nodes": [],
    }


def text(content: Any, style: Style = PLAIN, **known: Any) -> str:
    """Its lines, 4 minutes and 12 seconds after filter rejected it."""
    return "\n".join(explanation_lines(content, style, now_s=1252.0, **known))
