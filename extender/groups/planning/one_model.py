"""A plan on GPUs of one model: which models are tried, in which order, and why none will do.

The rule is that of `extender.groups.planning.gpu_models`. Where no model holds the group, but all
of them together would, that is the reason; else it is the one of a group whose members may be
mixed. It chooses no node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from extender.groups.planning.attempt import Alike
from extender.groups.planning.gpu_models import (
    ANY_MODEL,
    choices,
    excludes,
    held_models,
    is_mixable,
    nodes_by_model,
)
from extender.groups.planning.outcome import JointPlan, NoPlace
from extender.protocol import Reason

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from extender.groups.planning.attempt import Attempt
    from extender.groups.planning.offered_nodes import OfferedNodes
    from extender.protocol import PodRequest, Shape
    from extender.state import NodeRecord
    from topology.node_affinity import RequiredNodeAffinity

__all__ = ["plan_models"]

MAX_SELECTORS = 8
"""Different node selectors of members that are held against GPU models; where there are more, all
members get one model."""
MAX_SHOWN = 3
"""Models that a detail names."""


def plan_models(attempt: Attempt, records: Mapping[str, NodeRecord]) -> JointPlan | NoPlace:
    """Plan on the first model, or choice of models, that holds all members; `records` by name."""
    requests = [one for one, _ in attempt.members]
    if is_mixable(requests):
        alike = _alike(attempt.members, {})
        return attempt.on(alike, [ANY_MODEL] * len(alike))
    snapshot, near = attempt.snapshot, attempt.near
    held = held_models(snapshot, near.nodes, attempt.beside)
    by_model = nodes_by_model(snapshot, held)
    excluded = _excluded(attempt, records, by_model, held)
    alike = _alike(attempt.members, {one: i for i, one in enumerate(excluded)})
    former = held_models(snapshot, near.former)
    ordered = [
        _ordered(attempt, [one for one in alike if one.selector == i], by_model, former)
        for i in range(max(len(excluded), 1))
    ]
    refused: dict[str, NoPlace] = {}
    for chosen in choices(ordered, [*excluded.values()] or [frozenset()], held):
        found = attempt.on(alike, [chosen[one.selector] for one in alike])
        if isinstance(found, JointPlan):
            return found
        refused[_title(chosen)] = found
    return _why_none(attempt, alike, list(by_model), refused, is_held=bool(held))


def _alike(
    members: Sequence[tuple[PodRequest, OfferedNodes]],
    selectors: Mapping[RequiredNodeAffinity, int],
) -> list[Alike]:
    """The members alike; those of different selectors are, where these have no numbers."""
    places: dict[tuple[Shape | None, OfferedNodes, int], list[int]] = {}
    for place, (request, offer) in enumerate(members):
        key = request.shape, offer, selectors.get(request.node_affinity, 0)
        places.setdefault(key, []).append(place)
    return [
        Alike(members[found[0]][0], offer, tuple(found), selector)
        for (_, offer, selector), found in places.items()
    ]


def _excluded(
    attempt: Attempt,
    records: Mapping[str, NodeRecord],
    by_model: Mapping[str, NDArray[np.bool_]],
    held: frozenset[str],
) -> dict[RequiredNodeAffinity, frozenset[str]]:
    """The models that each selector of members leaves out; empty where one is left to all."""
    least: dict[RequiredNodeAffinity, PodRequest] = {}
    offers: dict[RequiredNodeAffinity, dict[OfferedNodes, None]] = {}
    for request, offer in attempt.members:
        selector = request.node_affinity
        offers.setdefault(selector, {})[offer] = None
        if selector not in least or request.size_gpus < least[selector].size_gpus:
            least[selector] = request
    if len(least) > MAX_SELECTORS or (len(least) == 1 and not held):
        return {}
    node_index = attempt.snapshot.node_index
    named = {
        selector: np.logical_or.reduce([one.may_go(node_index) for one in some])
        for selector, some in offers.items()
    }
    pool = [has_model for model, has_model in by_model.items() if model in held or not held]
    if any(all((one & has_model).any() for one in named.values()) for has_model in pool):
        return {}
    excluded = {
        selector: frozenset(
            model
            for model, has_model in by_model.items()
            if excludes(request, named[selector], has_model, attempt.snapshot, records)
        )
        for selector, request in least.items()
    }
    left = by_model.keys() - frozenset().union(*excluded.values())
    return {} if left & (held or left) else excluded


def _ordered(
    attempt: Attempt, alike: Sequence[Alike], models: Collection[str], former: Collection[str]
) -> list[str]:
    """The models, the best for these members first."""

    def place(model: str) -> tuple[object, ...]:
        keys = [attempt.worst_key(one, model) for one in alike]
        fitting = [key for key in keys if key is not None]
        has_room = len(fitting) == len(keys)
        return model not in former, not has_room, max(fitting) if has_room else (), model

    return sorted(models, key=place)


def _why_none(
    attempt: Attempt,
    alike: Sequence[Alike],
    models: Sequence[str],
    refused: Mapping[str, NoPlace],
    *,
    is_held: bool,
) -> NoPlace:
    """Why no choice of models holds the group."""
    slow = [one for one in refused.values() if one.reason is Reason.GROUP_TOO_SLOW]
    if slow:
        return slow[0]
    if len(models) == len(refused) == 1:
        return next(iter(refused.values()))
    is_never = {one.reason for one in refused.values()} == {Reason.GROUP_NEVER}
    together = attempt.together(alike, models)
    if together is not None and (together.reason is Reason.GROUP_NEVER or not is_never):
        return together
    known = [(title, one) for title, one in refused.items() if one.n_room is not None]
    # Where it is a matter of time first, then the most room.
    known.sort(key=lambda at: (at[1].reason is Reason.GROUP_NEVER, -(at[1].n_room or 0), at[0]))
    rooms = [_room(title, one) for title, one in known[:MAX_SHOWN]]
    if len(known) > MAX_SHOWN:
        rooms.append(f"and {len(known) - MAX_SHOWN} more")
    detail = f"room for members: {', '.join(rooms)}"
    if is_held:
        detail += "; all must have the GPU model of the members that have a node already"
    return NoPlace(Reason.GROUP_MODEL_NEVER if is_never else Reason.GROUP_ONE_MODEL, detail)


def _room(title: str, found: NoPlace) -> str:
    return f"{title} {found.n_room}{' when empty' if found.reason is Reason.GROUP_NEVER else ''}"


def _title(chosen: Sequence[str]) -> str:
    return " and ".join(one or "unknown model" for one in dict.fromkeys(chosen))
