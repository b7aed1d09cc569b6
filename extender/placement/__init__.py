"""Filter and prioritize: which nodes fit a pod, how good they are, which of them are named.

A function of a snapshot and a pod; changes nothing and knows no HTTP.
"""

from extender.placement.domain_free_capacity import DomainFreeCapacity
from extender.placement.filter_score import (
    Filtered,
    filter_nodes,
    plan_bind,
    plan_fit,
    prioritize_nodes,
    refuse_nodes,
    score_nodes,
)
from extender.placement.node_order import Rank, RankKey, rank_fit, scores
from extender.placement.rating import WORK_S, Rater, RatingBudget, Refusal, rating_work

__all__ = [
    "WORK_S",
    "DomainFreeCapacity",
    "Filtered",
    "Rank",
    "RankKey",
    "Rater",
    "RatingBudget",
    "Refusal",
    "filter_nodes",
    "plan_bind",
    "plan_fit",
    "prioritize_nodes",
    "rank_fit",
    "rating_work",
    "refuse_nodes",
    "score_nodes",
    "scores",
]
