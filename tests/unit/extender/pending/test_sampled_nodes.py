"""Pods that were rejected on a sample of the nodes: one that was left out may take them."""

from __future__ import annotations

from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest

from extender.engine import Engine, Gateway
from extender.engine.events import (
    FreshnessSet,
    NodeUpdated,
    PodDeleted,
    PodUpdated,
    RatingsResumed,
    RequeueDue,
    VerbCalled,
)
from extender.pending import requeues
from extender.pending.requeues import MAX_LOOK_WORK
from extender.pending.sampling import is_sample_size, n_samples
from extender.protocol import Outcome, Verb
from tests.unit.extender.engines import RULES
from tests.unit.extender.feeds import content, facts, ids, live, node, plan_of
from tests.unit.extender.pods import args

if TYPE_CHECKING:
    from collections.abc import Mapping

N_NODES, N_SAMPLED = 250, 120
"""By default kube-scheduler looks for 48 % of so many nodes."""
NAMES = [f"n{i}" for i in range(N_NODES)]
LAST = NAMES[-1]


class Scene:
    """250 full nodes, but the last one, which is free."""

    def __init__(self, worths: Mapping[str, str | None] = MappingProxyType({})) -> None:
        nodes = (node(name, worth=worths.get(name)) for name in NAMES)
        self.gateway = Gateway(Engine(live(*nodes), RULES))
        for name in NAMES[:-1]:
            self.gateway.handle(PodUpdated(facts(f"on-{name}", plan_of(name, *ids(name)))))
        self.requeued(100.0)

    def reject(self, names: list[str], now_s: float, uid: str = "p") -> None:
        """A pod of four GPUs finds no node among these."""
        answer = self.gateway.handle(VerbCalled(Verb.FILTER, args(content(uid, 4), names), now_s))
        assert answer.outcome is Outcome.REFUSED

    def requeued(self, now_s: float) -> list[str]:
        """Who is requeued; the watches are fresh."""
        self.gateway.handle(FreshnessSet(is_synced=True, observed_at_s=now_s))
        return [requeue.uid for requeue in self.gateway.handle(RequeueDue(now_s))]


@pytest.fixture
def scene() -> Scene:
    """No pod is pending yet."""
    return Scene()


@pytest.mark.parametrize(
    ("n_named", "is_requeued"),
    [
        pytest.param(N_SAMPLED, True, id="as many as the scheduler samples by default"),
        pytest.param(100, True, id="as many as it samples at least"),
        pytest.param(N_SAMPLED + 1, False, id="no sample has this size: the others were excluded"),
        pytest.param(50, False, id="below 100 it looks at all nodes"),
    ],
)
def test_a_pod_is_requeued_for_a_node_that_the_sample_left_out(scene, n_named, is_requeued):
    """It fitted all the time, and nothing came free that would requeue a pod."""
    scene.reject(NAMES[:n_named], 101.0)
    assert scene.requeued(101.1) == []
    assert (scene.requeued(101.7) == ["p"]) == is_requeued


def test_a_pod_is_left_alone_where_no_node_fits(scene):
    """The last node is taken too; when it comes free the pod is requeued, though left out."""
    scene.gateway.handle(PodUpdated(facts("on-last", plan_of(LAST, *ids(LAST)))))
    scene.reject(NAMES[:N_SAMPLED], 101.0)
    assert [scene.requeued(101.1 + i) for i in range(5)] == [[]] * 5
    scene.gateway.handle(PodDeleted("on-last"))
    assert scene.requeued(110.0) + scene.requeued(111.0) == ["p"]


def test_requeues_become_rare_once_the_samples_had_time_to_show_all_nodes(scene):
    """Three of 120 are all nodes; a pod that its selectors keep away would be requeued for ever."""
    now_s, requeues = 101.0, []
    scene.reject(NAMES[:N_SAMPLED], now_s)
    while now_s < 140.0:
        now_s += 0.25
        if scene.requeued(now_s):
            requeues.append(now_s)
            scene.reject(NAMES[:N_SAMPLED], now_s)
    pauses = [later - earlier for earlier, later in pairwise(requeues)]
    assert pauses[:5] == [1.0, 1.0, 1.0, 2.0, 4.0]


def test_other_pods_of_the_shape_are_not_requeued_for_nodes_that_rejected_them(scene):
    """Their filter calls named all nodes but one that their selectors exclude."""
    scene.reject(NAMES[:-1], 101.0, "picky")
    scene.reject(NAMES[:N_SAMPLED], 101.0)
    assert [scene.requeued(101.1), scene.requeued(101.7)] == [[], ["p"]]
    scene.gateway.handle(NodeUpdated(node("n250")))
    assert set(scene.requeued(103.0) + scene.requeued(104.0)) == {"picky", "p"}


def test_the_nodes_left_out_are_looked_at_though_numbers_are_given_out_again(scene, monkeypatch):
    """Renumbering the nodes puts every pod into a new group."""
    monkeypatch.setattr(requeues, "SPARE_NUMBERS", -2 * N_NODES - 1)
    scene.reject(NAMES[:N_SAMPLED], 101.0)
    scene.reject(NAMES[:-1], 101.0, "picky")
    assert scene.requeued(101.1) + scene.requeued(101.7) == ["p"]


def test_a_look_at_all_nodes_rates_few_of_them_and_the_rest_is_rated_beside():
    """Each node may be of a kind of its own: a search for each would stop the scheduler."""
    scene = Scene({name: str(1 + i) for i, name in enumerate(NAMES)})
    scene.reject(NAMES[:N_SAMPLED], 101.0)
    assert [scene.requeued(now_s) for now_s in (101.1, 101.2)] == [[], []]
    n_deferred = scene.gateway.engine.n_deferred
    assert n_deferred == N_NODES - N_SAMPLED - MAX_LOOK_WORK
    scene.gateway.handle(RatingsResumed(n_deferred))
    assert [scene.requeued(now_s) for now_s in (101.3, 101.9)] == [[], ["p"]]


@pytest.mark.parametrize(
    ("n_requested", "n_nodes", "is_sample"),
    [
        pytest.param(500, 5000, True, id="10 %, the default for 5,000 nodes"),
        pytest.param(501, 5000, False, id="no whole percentage"),
        pytest.param(5000, 5000, False, id="all nodes"),
        pytest.param(99, 99, False, id="few nodes, all of them"),
        pytest.param(100, 101, True, id="the least"),
        pytest.param(42, 1000, False, id="fewer than the least"),
        pytest.param(333, 1234, True, id="27 % rounded down"),
    ],
)
def test_sizes_of_samples(n_requested, n_nodes, is_sample):
    """As numFeasibleNodesToFind computes them."""
    assert is_sample_size(n_requested, n_nodes) == is_sample
    sizes = {max(100, n_nodes * percentage // 100) for percentage in range(1, 100)}
    assert is_sample == (n_requested in sizes and n_requested < n_nodes)
    assert (n_samples(n_requested, n_nodes) - 1) * n_requested < n_nodes
    assert n_samples(n_requested, n_nodes) * n_requested >= n_nodes
