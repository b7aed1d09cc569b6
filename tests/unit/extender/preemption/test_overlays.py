"""What a pod would have on a node if others left, and what is known of these."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from extender.placement import Rater
from extender.preemption.overlays import (
    LOWEST_PRIORITY,
    Priorities,
    RatedOverlay,
    RatedOverlays,
    settled,
)
from extender.protocol import PodRequest, messages, parse_pod
from tests.unit.extender.pods import GPU, pod
from tests.unit.extender.preemption.test_state_machine import FULL, Place, victims, wanting
from topology.annotations import ContainerPlan, Plan

if TYPE_CHECKING:
    from collections.abc import Iterable

V100 = {"count": 1, "machine": "dgx-1-v100"}
ALIGNED = {"topology_manager_policy": "restricted", "topology_manager_scope": "container"}
ODD = {"count": 1, "machine": "8x-b200-gpu2-no-nvlink"}


def request(content: dict[str, Any]) -> PodRequest:
    """What a pod requests."""
    return parse_pod(messages.decode(messages.WirePod, json.dumps(content).encode()), (GPU,))


def room(place: Place, content: dict[str, Any]) -> RatedOverlay:
    """The first node as this pod may use it."""
    found = RatedOverlays(place.cluster, Rater(), request(content)).get(place.nodes[0])
    assert found is not None
    return found


def uids(gpus: Iterable[int]) -> list[str]:
    """The pods on these GPUs of the first node."""
    return [f"n0-{gpu}" for gpu in gpus]


def test_what_evicting_each_pod_frees():
    """A bad GPU stays bad, and free devices have no owner."""
    place = Place()
    place.put("two", 0, 3)
    place.put("sick", 4, 5)
    place.break_gpus(4)
    found = room(place, wanting())
    assert (found.view.free, found.held) == (0b11000110, {"two": 0b1001, "sick": 0b100000})
    assert found.free_without(["sick", "another"]) == 0b11100110


def test_a_pod_does_not_evict_itself():
    """What it has assumed already it may have anyway."""
    place = Place()
    mine = request(wanting())
    ids = place.cluster.snapshot.views[0].ids[:2]
    plan = Plan(place.nodes[0], (ContainerPlan("main", GPU, ids),), ids, 1, 0.0, 0)
    assert place.cluster.assume(mine, plan, deadline_s=1.0) is None
    assert room(place, wanting()).held == {}


def test_those_who_have_left_have_left_their_devices():
    """The API server showed the node without them."""
    place = Place()
    place.fill(*FULL)
    found = room(place, wanting()).without({"n0-0", "n0-3"})
    assert (found.view.free, list(found.held)) == (0b1001, uids((1, 2, 4, 5, 6, 7)))


@pytest.mark.parametrize(
    ("group", "content", "name"),
    [
        pytest.param(V100, wanting(), "elsewhere", id="a node that we do not know"),
        pytest.param(V100 | {"resource": "amd.com/gpu"}, wanting(), None, id="another resource"),
        pytest.param(V100, pod(uid="want"), None, id="a pod without GPUs"),
    ],
)
def test_where_there_is_no_room_to_speak_of(group, content, name):
    """Nothing is said about such a node."""
    place = Place(1, group)
    rooms = RatedOverlays(place.cluster, Rater(), request(content))
    assert rooms.get(name or place.nodes[0]) is None


@pytest.mark.parametrize(
    ("group", "n_gpus", "leaving", "is_enough", "may_do"),
    [
        pytest.param(V100, 2, (0, 3), True, True, id="a linked pair"),
        pytest.param(V100, 2, (0, 5), False, False, id="a pair without a link"),
        pytest.param(ODD, 4, range(8), True, True, id="nothing confines the pod"),
        pytest.param(ODD | ALIGNED, 4, range(8), False, True, id="the kubelet takes the odd GPU"),
        pytest.param(ODD | ALIGNED, 4, range(4), False, False, id="the odd GPU is all there is"),
        pytest.param(ODD | ALIGNED, 4, range(4, 8), True, True, id="it is not free"),
    ],
)
def test_whether_a_set_satisfies_the_pod_once_these_are_gone(
    group, n_gpus, leaving, is_enough, may_do
):
    """On a machine that we know; there a kubelet that aligns may do better with less."""
    place = Place(1, group)
    place.fill(*FULL)
    found = room(place, wanting(n_gpus))
    assert found.has_machine
    assert (found.is_enough(uids(leaving)), found.may_do(uids(leaving))) == (is_enough, may_do)


def test_without_a_topology_the_schedulers_count_stands():
    """Which devices these pods have says nothing about what the others lack."""
    place = Place(1, {"count": 1, "devices": 8})
    place.fill(*FULL)
    assert room(place, wanting(8, affinity="nvlink")).is_enough(["n0-0"])
    assert not room(place, wanting(9, affinity="nvlink")).is_enough(uids(range(8)))


def test_a_scheduler_that_knows_of_more_free():
    """Its victims would not be enough for its own count."""
    place = Place()
    place.fill(*FULL)
    found = room(place, wanting(2))
    assert found.is_behind(["n0-0"])
    assert not found.is_behind(["n0-0", "n0-5"])


def test_better_sets_have_less_quality_to_lose():
    """Two links are better than one, and none is no set for this pod."""
    found = room(Place(), wanting(2))
    double, single = found.quality(0b1001), found.quality(0b11)
    assert double is not None
    assert single is not None
    assert double < single
    assert found.quality(0b100001) is None


def test_priorities_come_from_plans_or_from_pods_that_were_sent_whole():
    """Of others nothing is known, and they may go."""
    place = Place()
    place.fill(7, 1000)
    sent = messages.Victims.model_validate(
        {"Pods": [{"metadata": {"uid": "sent"}, "spec": {"priority": 1001}}]}
    )
    plain = messages.Victims.model_validate({"Pods": [{"metadata": {"uid": "plain"}, "spec": {}}]})
    named = messages.MetaVictims.model_validate(victims("n0-0"))
    given: dict[str, messages.MetaVictims | messages.Victims] = {"a": sent, "b": plain, "c": named}
    priorities = Priorities(place.cluster, given, own=1000)
    uids = ["n0-0", "n0-1", "sent", "plain", "unknown"]
    assert [priorities.of(uid) for uid in uids] == [7, 1000, 1001, 0, None]
    assert [priorities.is_too_high(uid) for uid in uids] == [False, True, True, False, False]


def test_a_plan_that_cannot_be_read_has_no_priority():
    """A pod that another client bound with a text of its own."""
    place = Place()
    place.show("x", "{")
    assert Priorities(place.cluster, {}, own=1000).of("x") is None


def test_what_the_schedulers_victims_cost():
    """Budgets, the most important, how important in sum, how many."""
    place = Place()
    place.fill(7, 3)
    priorities = Priorities(place.cluster, {}, own=1000)

    def cost(*given: str, unknown: int, n_violations: int = 0):
        content = victims(*given, n_violations=n_violations)
        return priorities.cost(messages.MetaVictims.model_validate(content), unknown=unknown)

    shift = 1 << 31
    assert cost("n0-0", "n0-1", n_violations=2, unknown=0) == (2, 7, 10 + 2 * shift, 2)
    assert cost("n0-1", "who", unknown=999) == (0, 999, 1002 + 2 * shift, 2)
    assert cost("who", unknown=LOWEST_PRIORITY) == (0, LOWEST_PRIORITY, 0, 1)
    assert cost(unknown=0) == (0, LOWEST_PRIORITY, 0, 0)


def test_only_pods_that_the_api_server_shows_are_missed_in_a_reading():
    """A plan that is being written is on no node yet."""
    place = Place(2)
    place.put("a", 0)
    place.put("b", 1, 2)
    place.put("c", 0, node=1)
    ids = place.cluster.snapshot.views[0].ids
    place.break_gpus(2)
    plan = Plan(place.nodes[0], (ContainerPlan("main", GPU, ids[3:4]),), ids[3:4], 1, 0.0, 0)
    coming = request(wanting(1))
    assert place.cluster.assume(coming, plan, deadline_s=1.0) is None
    assert settled(place.cluster, place.nodes[:1]) == {"a", "b"}
    assert settled(place.cluster, place.nodes) == {"a", "b", "c"}
    assert settled(place.cluster, []) == frozenset()
