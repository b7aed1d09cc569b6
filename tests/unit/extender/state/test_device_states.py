"""States of devices and the generation, as they follow from the accounts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.extender.feeds import (
    bare,
    facts,
    hold,
    live,
    node,
    owners,
    plan_of,
    report,
    whole,
    wish,
)

if TYPE_CHECKING:
    from extender.state import LiveCluster

Step = "Callable[[LiveCluster], object]"
PLAN = plan_of("n1", "n1-0", "n1-1")


def assume(cluster: LiveCluster) -> None:
    """A binding of pod p is in flight."""
    assert cluster.assume(wish("p", 2), PLAN, deadline_s=10.0) is None


def states(cluster: LiveCluster) -> list[str]:
    """The states of the devices of n1."""
    return [state.value for _, state, _ in cluster.devices("n1")]


def seen(uid: str, *positions: int) -> Any:
    """A watch shows a pod with a plan for these devices of n1."""
    pod = facts(uid, plan_of("n1", *(f"n1-{i}" for i in positions)))
    return lambda cluster: cluster.pods.update(pod)


def reported(*unhealthy: str, **more: Any) -> Any:
    """The node reports its devices."""
    return lambda cluster: cluster.update_node(node("n1", devices=report(*unhealthy, **more)))


HELD = reported(holds=(hold("p", "n1-0", "n1-1"),))
CLAIM = lambda cluster: cluster.pods.nominations.add(wish("p", 2), "n1")  # noqa: E731 - a table's entry


@pytest.mark.parametrize(
    ("before", "change", "n_changes", "after"),
    [
        pytest.param((), assume, 1, "assumed assumed free free", id="a bind begins"),
        pytest.param((), seen("p", 0, 1), 2, "bound bound free free", id="a watch shows a plan"),
        pytest.param(
            (assume,),
            lambda it: it.pods.confirm("p"),
            1,
            "bound bound free free",
            id="it is accepted",
        ),
        pytest.param(
            (assume,),
            lambda it: it.pods.forget("p"),
            1,
            "free free free free",
            id="it is forgotten",
        ),
        pytest.param(
            (assume, lambda it: it.pods.confirm("p")),
            seen("p", 0, 1),
            0,
            "bound bound free free",
            id="a watch confirms it",
        ),
        pytest.param(
            (seen("p", 0, 1),), seen("p", 1, 2), 3, "free bound bound free", id="another plan"
        ),
        pytest.param(
            (seen("p", 0),),
            lambda it: it.pods.delete("p"),
            1,
            "free free free free",
            id="a pod ends",
        ),
        pytest.param((seen("p", 0, 1),), HELD, 2, "held held free free", id="the kubelet has it"),
        pytest.param((HELD,), reported(), 1, "free free free free", id="a hold ends"),
        pytest.param((), CLAIM, 1, "claimed claimed free free", id="a nomination claims"),
        pytest.param((CLAIM,), assume, 2, "assumed assumed free free", id="a claim becomes a plan"),
        pytest.param(
            (CLAIM,),
            reported("n1-0"),
            3,
            "unhealthy claimed claimed free",
            id="a claimed device becomes unhealthy: another set is claimed",
        ),
        pytest.param(
            (),
            reported("n1-3"),
            1,
            "free free free unhealthy",
            id="a free device becomes unhealthy",
        ),
        pytest.param(
            (reported("n1-3"),), reported(), 1, "free free free free", id="a device recovers"
        ),
        pytest.param(
            (reported("n1-3"),),
            reported("n1-2"),
            2,
            "free free unhealthy free",
            id="one becomes unhealthy, one recovers",
        ),
        pytest.param(
            (seen("p", 0, 1),),
            reported("n1-0"),
            1,
            "bound_unhealthy bound free free",
            id="a pod keeps its bad device",
        ),
        pytest.param(
            (assume,),
            reported("n1-0"),
            1,
            "assumed_unhealthy assumed free free",
            id="so does a binding in flight",
        ),
        pytest.param(
            (reported("n1-0"),),
            seen("p", 0, 1),
            4,
            "bound_unhealthy bound free free",
            id="a plan that names a bad device",
        ),
        pytest.param(
            (HELD,),
            reported("n1-1", holds=(hold("p", "n1-0", "n1-1"),)),
            1,
            "held held_unhealthy free free",
            id="a held device becomes unhealthy",
        ),
        pytest.param(
            (seen("p", 0, 1),), seen("q", 1), 0, "bound bound free free", id="a contested plan"
        ),
        pytest.param(
            (seen("p", 0),),
            lambda it: it.update_node(node("n1", prefix="b-")),
            2,
            "free free free free",
            id="other devices: the planned one is removed",
        ),
        pytest.param(
            (),
            lambda it: it.update_node(node("n1", zone="z2")),
            1,
            "free free free free",
            id="zone",
        ),
        pytest.param((), lambda it: it.delete_node("n1"), 1, "", id="the node goes"),
    ],
)
def test_each_change_counts_and_leaves_its_states(
    before: tuple[Any, ...], change: Any, n_changes: int, after: str
) -> None:
    """Decision logs name generations: the rule must stay, or old logs replay no more."""
    cluster = live(node("n1"))
    for step in before:
        step(cluster)
        assert cluster.snapshot.is_synced
    generation = cluster.snapshot.generation
    change(cluster)
    assert cluster.snapshot.generation - generation == n_changes
    assert " ".join(states(cluster)) == after
    counts = {state.value: n for state, n in cluster.counts().items() if n}
    assert counts == {state: states(cluster).count(state) for state in set(states(cluster))}
    assert cluster.n_owners == len({owner for _, owner in owners(cluster, "n1").values()})


def test_inputs_between_two_reads_count_as_what_they_come_to() -> None:
    """What came and went before it was read changes nothing."""
    cluster = live(node("n1"))
    generation = cluster.snapshot.generation
    assume(cluster)
    cluster.pods.forget("p")
    assert cluster.snapshot.generation == generation


def test_an_unknown_node_has_no_devices() -> None:
    """A pod may name one."""
    assert live(node("n1")).devices("n9") == ()


def test_a_pod_without_names_has_the_lowest_free_devices() -> None:
    """On a node by count any of them do: only their number is known."""
    cluster = live(bare("n1"))
    cluster.pods.update(facts("p"))
    cluster.pods.read(whole("p", "n1", 2))
    assert states(cluster) == ["bound", "bound", "free", "free"]
