"""Which GPU model a group gets: its members are on GPUs of one model, or wait.

What ranks and rings run at is what their slowest GPU allows, so one GPU model is decided on before
any nearness. The rule:

1. It holds unless every member states `coterie.gpu/affinity: none`.
2. Members with a node decide for the others. Without any, models are compared as a single pod's
   nodes are (`extender.placement.node_order`), by the worst node that members of the group would
   get on the best nodes of each model; of equal models the first by name. Those where ended members
   of the group were come first.
3. GPUs of unknown model are a model of their own, behind all others that are equal.
4. Where members state different node selectors and these leave no model to all of them, each
   selector's members get one model by themselves: different ones were asked for. So does a member
   whose selector excludes the model of those with a node.

A node with GPUs of several models counts for each with those GPUs alone. It chooses no node.

Complexity: at most `MAX_MODELS` models and as many choices among them, each in array operations
over the nodes; selectors are held against labels only where members state different ones and
kube-scheduler names no model for all of them, in O(nodes).
"""

from __future__ import annotations

from collections import Counter
from itertools import islice, product
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from extender.snapshot import only
from topology.annotations import Affinity
from topology.node_affinity import ANY_NODE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from extender.protocol import PodRequest
    from extender.snapshot import ClusterSnapshot, NodeClass, NodeView
    from extender.state import NodeRecord
    from topology.annotations import Plan

__all__ = [
    "ANY_MODEL",
    "MAX_MODELS",
    "Model",
    "choices",
    "excludes",
    "have_models",
    "held_models",
    "is_mixable",
    "mask_of_model",
    "nodes_by_model",
    "of_model",
]

Model: TypeAlias = "str | None"
"""A GPU model as `NodeClass.models` names it."""
ANY_MODEL: Model = None
"""Stands for all GPUs, where models may be mixed."""
MAX_MODELS = 16
"""Models that are tried, those on most nodes, and choices of models for members that are apart."""


def is_mixable(requests: Iterable[PodRequest]) -> bool:
    """Whether all members take GPUs of any models."""
    return all(
        one.shape is not None and one.shape.policy.affinity is Affinity.NONE for one in requests
    )


def mask_of_model(node_class: NodeClass, model: Model) -> int:
    """The devices of a model on nodes of a class, -1 for all that there are."""
    return -1 if model is None else node_class.models.get(model, 0)


def of_model(view: NodeView, model: Model) -> NodeView:
    """The node when only its GPUs of a model are free."""
    return only(view, mask_of_model(view.node_class, model))


def nodes_by_model(
    snapshot: ClusterSnapshot, held: Collection[str] = ()
) -> Mapping[str, NDArray[np.bool_]]:
    """The nodes that have GPUs of each model, bool[n] by position; the model of most nodes first.

    At most `MAX_MODELS` of them, those that are `held` before others.
    """
    n_nodes: Counter[str] = Counter()
    for number, count in enumerate(np.bincount(snapshot.state_ids).tolist()):
        if count:
            n_nodes.update(dict.fromkeys(snapshot.samples[number].node_class.models, count))
    models = sorted(n_nodes, key=lambda model: (model not in held, -n_nodes[model], model))
    return {model: have_models(snapshot, {model}) for model in models[:MAX_MODELS]}


def have_models(snapshot: ClusterSnapshot, models: Collection[str]) -> NDArray[np.bool_]:
    """The nodes that have GPUs of any of these models, bool[n] by position."""
    has = [any(model in one.node_class.models for model in models) for one in snapshot.samples]
    return np.array(has, dtype=np.bool_)[snapshot.state_ids]


def held_models(
    snapshot: ClusterSnapshot, nodes: Iterable[str], plans: Iterable[Plan] = ()
) -> frozenset[str]:
    """The models that members on these nodes have; by their plans where a node has several."""
    ids: dict[str, set[str]] = {}
    for plan in plans:
        ids.setdefault(plan.node, set()).update(plan.ids)
    found: set[str] = set()
    for name in {*nodes, *ids}:
        view = snapshot.nodes[name] if name in snapshot.positions else None
        if view is None:
            continue
        own = ids.get(name, set())
        mask = sum(1 << i for i, one in enumerate(view.ids) if one in own) or -1
        found |= {model for model, gpus in view.node_class.models.items() if gpus & mask}
    return frozenset(found)


def excludes(
    request: PodRequest,
    is_named: NDArray[np.bool_],
    has_model: NDArray[np.bool_],
    snapshot: ClusterSnapshot,
    records: Mapping[str, NodeRecord],
) -> bool:
    """Whether a pod's own selectors exclude the nodes that have a model.

    They do not where kube-scheduler names one of them. By labels that are not known they do where a
    node has enough free GPUs and is not named all the same.
    """
    if request.node_affinity == ANY_NODE or (is_named & has_model).any():
        return False
    is_unknown = False
    names, views = snapshot.node_index.names, snapshot.views
    for i in has_model.nonzero()[0].tolist():
        record = records.get(names[i])
        is_allowed = None
        if record is not None:
            is_allowed = request.node_affinity.allows(names[i], record.labels)
        if is_allowed is None and views[i].free.bit_count() >= request.size_gpus:
            is_allowed = False
        if is_allowed:
            return False
        is_unknown = is_unknown or is_allowed is None
    return not is_unknown


def choices(
    ordered: Sequence[Sequence[str]], excluded: Sequence[frozenset[str]], held: frozenset[str]
) -> Sequence[tuple[str, ...]]:
    """What to try, best first: a model for the members of each selector.

    `ordered` are all models, best first, and `excluded` those that it leaves out, for each of the
    selectors; `held` are those of members with a node.

    >>> choices([("a", "b")], [frozenset()], frozenset("b"))
    [('b',)]
    >>> choices([("a", "b"), ("b", "a")], [frozenset("b"), frozenset("a")], frozenset())
    [('a', 'b')]
    """
    apart = [
        [one for one in best if one not in out and (one in held or held <= out)]
        for best, out in zip(ordered, excluded, strict=True)
    ]
    return list(islice(product(*apart), MAX_MODELS))
