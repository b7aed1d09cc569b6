"""The `extender/v1` JSON that an extender answers kube-scheduler with.

Go's field names exactly (`k8s.io/kube-scheduler/extender/v1/types.go`, Kubernetes 1.36: no json
tags, so UpperCamel on the wire). Decides nothing, and reads nothing.

Traps that shape the answers (schedule_one.go, extender.go of 1.36): an answer without `NodeNames`
rejects every node; a score that is not an integer silently disables prioritize; only a body with
Content-Length and nothing behind the JSON value keeps the connection open.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "encode_bind",
    "encode_filter",
    "encode_preempt",
    "encode_prioritize",
    "reason_tail",
    "score_head",
    "score_tail",
]


def encode_filter(
    names_json: Iterable[str],
    *,
    failed_json: Iterable[str] = (),
    unresolvable_json: Iterable[str] = (),
    error: str = "",
) -> bytes:
    """Write an ExtenderFilterResult of what is JSON already.

    `names_json` are node names, the others a node's name and `reason_tail` of its reason.
    """
    return (
        f'{{"Nodes":null,"NodeNames":[{",".join(names_json)}],'
        f'"FailedNodes":{{{",".join(failed_json)}}},'
        f'"FailedAndUnresolvableNodes":{{{",".join(unresolvable_json)}}},'
        f'"Error":{json.dumps(error)}}}'
    ).encode()


def reason_tail(reason: str) -> str:
    """The part of a failed node's member that does not depend on the node.

    >>> '"n1"' + reason_tail("too small")
    '"n1":"too small"'
    """
    return f":{json.dumps(reason)}"


def score_head(name: str) -> str:
    """The part of a HostPriority that depends on the node; made once for each node.

    >>> score_head("n1") + score_tail(10)
    '{"Host":"n1","Score":10}'
    """
    return f'{{"Host":{json.dumps(name)},"Score":'


def score_tail(score: int) -> str:
    """The rest of a HostPriority."""
    return f"{score}}}"


def encode_prioritize(entries: Iterable[str]) -> bytes:
    """Write a HostPriorityList of entries that are JSON already."""
    return f"[{','.join(entries)}]".encode()


def encode_preempt(victims: Mapping[str, tuple[Iterable[str], int]]) -> bytes:
    """Write an ExtenderPreemptionResult: uids and PDB violations by node; always the Meta form.

    >>> encode_preempt({"n1": (("u1",), 0)})
    b'{"NodeNameToMetaVictims":{"n1":{"Pods":[{"UID":"u1"}],"NumPDBViolations":0}}}'
    """
    nodes = {
        name: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": n_violations}
        for name, (uids, n_violations) in victims.items()
    }
    return json.dumps({"NodeNameToMetaVictims": nodes}, separators=(",", ":")).encode()


def encode_bind(error: str = "") -> bytes:
    """Write an ExtenderBindingResult; success is the empty error."""
    return f'{{"Error":{json.dumps(error)}}}'.encode()
