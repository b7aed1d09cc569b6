"""What the containers of one node have, against what the node could have given them.

What it answers: for each container with two or more GPUs its figures, or why there are none. It
reads no annotation (`topology.audit.cluster`) and values no set itself (`topology.audit.figures`).

A container is judged by itself: "could have" leaves all others where they are.
"""

from __future__ import annotations

from itertools import combinations
from math import comb
from typing import TYPE_CHECKING

from topology.audit.cluster import AuditProblem, ProblemKind, Unjudged, UnjudgedReason
from topology.audit.values import AuditFigure, AuditSet
from topology.select import VALUE_CLASS_GAP
from topology.value import STATED_ERROR, gpus_of, mask_of

if TYPE_CHECKING:
    from topology.audit.cluster import HeldSet, NodeHoldings
    from topology.audit.figures import MachineFigures, SetWorth

__all__ = ["MAX_CHOICES", "figure", "judge_node", "leave_split_gpus_out"]

_NVIDIA = "nvidia.com/"
"""Domain of the resources that NVIDIA's device plugin serves: its policy chooses no other GPUs."""
MAX_CHOICES = 128
"""Choices of GPUs in MIG mode that are compared on a node: all of 8 GPUs (at most 70)."""


def leave_split_gpus_out(holdings: NodeHoldings, figures: MachineFigures) -> None:
    """Take out of a node's free GPUs those in MIG mode, of which only the number is known.

    Of all choices the first in lexical order without which its sets could have least in total, so
    that no figure is more than what the node could give. Above `MAX_CHOICES` of them it is not
    known which GPUs are free.
    """
    n_split, free = holdings.n_split, holdings.free
    if not n_split or free is None:
        return
    if comb(free.bit_count(), n_split) > MAX_CHOICES:
        holdings.free, holdings.n_split = None, 0
        text = (
            f"{n_split} of its GPUs are in MIG mode, not known which: which are free is not known"
        )
        holdings.problems.append(AuditProblem(ProblemKind.SHARED, text))
        return
    choices = [free & ~mask_of(split) for split in combinations(gpus_of(free), n_split)]
    sets = holdings.sets if figures.is_judged else []
    holdings.free = min(
        choices,
        key=lambda left: sum(
            figures.worth(figures.best(one.mask, left)).gbytes_per_s for one in sets
        ),
    )


def judge_node(
    holdings: NodeHoldings, figures: MachineFigures
) -> tuple[list[AuditSet], list[Unjudged]]:
    """Judge the sets of a node whose topology is known; and those that cannot be, with reasons."""
    if not figures.is_judged:
        return [], [_unjudged(one, UnjudgedReason.UNEQUAL) for one in holdings.sets]
    free = holdings.free
    if free is None:
        return [], [_unjudged(one, UnjudgedReason.FREE_UNKNOWN, one.mask) for one in holdings.sets]
    is_nvidia = holdings.resource.startswith(_NVIDIA)
    return [
        _judge(one, holdings, figures, free=free, is_nvidia=is_nvidia) for one in holdings.sets
    ], []


def _unjudged(one: HeldSet, reason: UnjudgedReason, mask: int = 0) -> Unjudged:
    return Unjudged(one.pod, one.container, one.mask.bit_count(), reason, mask)


def _judge(
    one: HeldSet,
    holdings: NodeHoldings,
    figures: MachineFigures,
    *,
    free: int,
    is_nvidia: bool,
) -> AuditSet:
    best = figures.best(one.mask, free)
    has, could_have = figures.worth(one.mask), figures.worth(best)
    policy = figures.best_effort(one.mask | free, one.mask.bit_count()) if is_nvidia else None
    limit = figures.limit(one.mask)
    loss = 1 - has.gbytes_per_s / could_have.gbytes_per_s
    return AuditSet(
        namespace=one.pod.namespace,
        pod=one.pod.name,
        container=one.container,
        node=holdings.node.name,
        machine=holdings.digest,
        gpus=gpus_of(one.mask),
        source=one.source,
        limit=limit.name.lower(),
        stated_error=STATED_ERROR[limit],
        has=figure(has),
        could_have=figure(could_have),
        could_have_gpus=gpus_of(best),
        best_effort=None if policy is None else figure(policy),
        loss=round(loss, 4),
        is_best=loss <= VALUE_CLASS_GAP,
    )


def figure(worth: SetWorth) -> AuditFigure:
    """A worth as a report shows it."""
    return AuditFigure(round(worth.gbytes_per_s, 3), round(worth.share, 4))
