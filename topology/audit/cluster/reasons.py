"""Why a container or a node of a cluster is in no figure: closed sets, for people and programs.

It finds out nothing (`topology.audit.cluster.holdings` does).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["AuditProblem", "ProblemKind", "UnjudgedReason"]


class UnjudgedReason(Enum):
    """Why a container is in no figure."""

    NO_TOPOLOGY = "its node has no topology that can be read"
    BY_NUMBER = "its GPUs are known by number only"
    NOT_WHOLE = "its devices are no whole GPUs of its node's topology"
    RUNS_WITHOUT = "it runs without the GPUs that it requests, as the node plugin reports"
    TWO_OWNERS = (
        "another container has one of its GPUs, by a source that is trusted as much or more"
    )
    FREE_UNKNOWN = "it is not known which other GPUs of its node are free"
    UNEQUAL = "its node has more than 16 GPUs, whose links are not equal"


class ProblemKind(Enum):
    """Why a node is not covered."""

    NO_TOPOLOGY = "no-topology"
    UNREADABLE = "unreadable"
    QUANTITY = "quantity"
    BY_NUMBER = "by-number"
    SHARED = "shared"
    FEWER = "fewer"


@dataclass(frozen=True, slots=True)
class AuditProblem:
    """Why a node is not covered, and the sentence with its figures."""

    kind: ProblemKind
    text: str
