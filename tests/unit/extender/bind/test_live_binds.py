"""Binds on a live cluster in any order of events, and the replay of each such run."""

from __future__ import annotations

from random import Random

import pytest

from extender.decision_log.replay import replay
from extender.protocol import Outcome
from tests.unit.extender.engines import owned
from tests.unit.extender.live_world import LiveWorld, node_facts
from tests.unit.extender.recorded_plans import recorded_plans
from topology.annotations import decode_plan

NODES = (node_facts("n1"), node_facts("n2", "8x-l4"))


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_no_device_is_planned_twice_and_none_is_lost(seed):
    """Requests that time out and come true later, pods re-created, schedulers that race."""
    world = LiveWorld(Random(seed), NODES)  # noqa: S311 - seeded, to repeat
    for _ in range(400):
        world.act()
    world.settle()
    cluster = world.gateway.cluster
    assert {uid: set(owned(cluster, uid)) for uid in world.held()} == world.held()
    assert cluster.n_owners == len(world.held())
    assert any(answer.outcome is Outcome.OK for answer in world.outcomes)
    lines = world.file.getvalue().splitlines(keepends=True)
    assert replay(lines).difference is None
    for plan in recorded_plans(lines):
        if plan.text is not None:
            decoded = decode_plan(plan.text)
            assert (decoded.node, decoded.generation) == (plan.node, plan.generation)
            assert set(decoded.ids) <= set(plan.free)
