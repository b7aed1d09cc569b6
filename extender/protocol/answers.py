"""What comes out of the engine: one answer to one call.

The bytes for the caller, and beside them what shells log, count and report to users.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from extender.protocol import responses

if TYPE_CHECKING:
    from extender.protocol.reasons import Reason
    from topology.annotations import Plan

__all__ = ["Answer", "Outcome", "Verb", "failure"]


class Verb(Enum):
    """What can be called."""

    FILTER = "filter"
    PRIORITIZE = "prioritize"
    PREEMPT = "preempt"
    BIND = "bind"
    EXPLAIN = "explain"


class Outcome(Enum):
    """What became of a call.

    REFUSED: answered, but no node (or no set) for the pod. FAILED: the caller gets an
    error.
    """

    OK = "ok"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer and what there is to say about it; `body` is JSON.

    `n_nodes` counts the requested nodes, `n_named` those named in the answer. Of a set that was
    bound: `placed_gbytes_per_s` the predicted bandwidth (0: nothing to reduce), `placed_efficiency`
    its share of the best on the empty machine (0..1, of the worst container; None where it is
    unknown), `machine` the kind of its node, `size_gpus` the pod's GPUs. `n_replans` counts the
    plans that a bind made beyond its first, `n_deferred` the node states that there was no time to
    rate. `waited_s` is how long a pod that filter names a node for was rejected before, None if it
    was not, and `waited_for` why the last time. Of a call that waited for the API server: `own_s`
    is the part of its time that was ours; `plan` is the plan that was written with the Binding.
    """

    verb: Verb
    outcome: Outcome
    body: bytes
    generation: int
    reason: Reason | None = None
    detail: str = ""
    pod: str = ""
    pod_uid: str = ""
    node: str = ""
    n_nodes: int = 0
    n_named: int = 0
    placed_gbytes_per_s: float | None = None
    placed_efficiency: float | None = None
    machine: str = ""
    size_gpus: int = 0
    n_replans: int = 0
    warnings: tuple[str, ...] = ()
    n_deferred: int = 0
    waited_s: float | None = None
    waited_for: Reason | None = None
    own_s: float | None = None
    plan: Plan | None = None


def failure(verb: Verb, reason: Reason, detail: str, generation: int) -> Answer:
    """Answer with what is wrong, in-band where the verb has a field for it."""
    if verb is Verb.FILTER:
        body = responses.encode_filter((), error=detail)
    elif verb is Verb.BIND:
        body = responses.encode_bind(detail)
    else:
        body = json.dumps({"error": detail}).encode()
    return Answer(verb, Outcome.FAILED, body, generation, reason, detail)
