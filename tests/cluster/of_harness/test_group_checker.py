"""The checker of groups can fail: forged histories of one group of three."""

from __future__ import annotations

import time

import pytest

from tests.cluster.fleet.checker import Change
from tests.cluster.fleet.group_checker import GroupChecker
from tests.cluster.fleet.workload import make_pod

pytestmark = pytest.mark.cluster

GROUP = "default/g"
EVICTED = {
    "phase": "Running",
    "conditions": [{"type": "DisruptionTarget", "reason": "PreemptionByScheduler"}],
}


class History:
    """Forged revisions, a second apart, the first of them a hundred seconds ago."""

    def __init__(self):
        self.checker = GroupChecker()
        self.revision = 0
        self.begun_s = int(time.monotonic()) - 100.0

    def put(self, name, value):
        """One revision of one pod."""
        self.revision += 1
        key = f"/registry/pods/default/{name}"
        self.checker.see(Change(self.revision, self.begun_s + self.revision, key, value))

    def member(self, name, *, uid=None, node=None, status=None):
        """A member as it is created, or bound."""
        wishes = {"coterie.gpu/group": "g", "coterie.gpu/group-size": "3"}
        pod = make_pod(name, 0, annotations=wishes)
        pod["metadata"]["uid"] = uid or name
        pod["spec"]["nodeName"] = node
        pod["status"] = status or {"phase": "Pending"}
        self.put(name, pod)

    def bound(self, *names):
        """Members that are bound, one after another."""
        for name in names:
            self.member(name, node="n")

    def gone(self, *names):
        """The objects are removed."""
        for name in names:
            self.put(name, None)

    @property
    def group(self):
        """The group as it is."""
        return self.checker.groups[GROUP]


@pytest.fixture
def history():
    """Three members that were created."""
    made = History()
    for name in "abc":
        made.member(name)
    return made


def test_a_group_is_partly_bound_from_its_first_binding_to_its_last(history):
    """The time by which runs are judged, in the revisions' own seconds."""
    history.bound("a", "b")
    assert history.checker.incomplete() == [GROUP]
    history.bound("c")
    assert history.checker.incomplete() == []
    assert history.group.partial_s == 2
    assert history.group.refused == set()


def test_a_group_that_stays_partly_bound_is_so_until_now(history):
    """A member that ended counts as bound; nothing else ends the time."""
    history.bound("a")
    history.gone("a")
    assert history.group.settled_s is None
    assert history.group.partial_s > 90


def test_a_member_deleted_before_any_was_bound_is_not_refused(history):
    """What took its place counts instead: the group is partly bound until that is bound."""
    history.gone("c")
    history.member("c", uid="c2")
    history.bound("a", "b")
    history.member("c", uid="c2", node="n")
    assert history.group.refused == set()
    assert history.group.partial_s == 2


def test_a_member_deleted_while_the_group_is_partly_bound_is_refused(history):
    """Its Binding cannot be made any more; the others may not wait for longer than without it."""
    history.bound("a")
    history.gone("c")
    assert history.group.refused == {"c"}
    history.bound("b")
    assert history.group.partial_s == 2
    assert history.checker.incomplete() == [GROUP]
    history.member("c", uid="c2")
    history.member("c", uid="c2", node="n")
    assert history.checker.incomplete() == []
    assert history.group.partial_s == 2


def test_pods_of_the_name_of_a_group_that_is_over_are_another_group(history):
    """Else a group that was whole once could be bound in part ever after."""
    history.bound("a", "b", "c")
    history.gone("a", "b", "c")
    history.member("a", uid="a2")
    history.member("a", uid="a2", node="n")
    assert [one.complete_s is None for one in history.checker.every_group()] == [False, True]
    assert history.checker.incomplete() == [GROUP]


def test_an_eviction_is_seen_in_the_pods_status(history):
    """kube-scheduler writes it before it deletes the pod."""
    history.bound("a")
    assert history.checker.evicted == {}
    history.member("a", node="n", status=EVICTED)
    history.gone("a")
    assert history.checker.evicted == {"a": "default/a"}
