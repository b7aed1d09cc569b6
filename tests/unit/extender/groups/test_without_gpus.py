"""A group whose size counts pods without GPUs is complete when the others are there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extender.decision_log.replay import replay
from extender.engine.events import (
    PendingDeleted,
    PendingListed,
    PendingUpdated,
    PodDeleted,
    PodsListed,
    PodUpdated,
)
from extender.protocol import Reason
from tests.unit.extender.feeds import facts, whole
from tests.unit.extender.group_scene import GroupScene
from tests.unit.extender.pods import pod

LWS = "leaderworkerset.sigs.k8s.io/"
LABELS = {f"{LWS}group-key": "k1"}
ANNOTATIONS = {f"{LWS}size": "3"}
BOUND = facts("leader", may_request=False, group_marks={**LABELS, **ANNOTATIONS})


class Workers(GroupScene):
    """A LeaderWorkerSet of three pods, the leader's included."""

    def __init__(self) -> None:
        super().__init__(group_kinds=("leaderworkerset",))

    def manifest(
        self, uid: str, group: str = "", size: int | None = None, n_gpus: int = 4, **more: Any
    ) -> dict[str, Any]:
        """A worker, or with 0 GPUs the leader."""
        del group, size
        made = pod(n_gpus or None, uid=uid, **more)
        made["metadata"]["labels"] |= LABELS
        made["metadata"]["annotations"] |= ANNOTATIONS
        return made

    def pending(
        self, uid: str, group: str = "", size: int | None = None, n_gpus: int = 4, **more: Any
    ) -> Any:
        """The same as the watch of pending pods shows it."""
        body = self.manifest(uid, group, size, n_gpus, **more)
        return whole(uid, None, body=body, phase="Pending", labels=LABELS, annotations=ANNOTATIONS)

    def tried(self) -> Reason | None:
        """What both workers are answered, once what is due was planned."""
        self.see("w1", "w2")
        for uid in ("w1", "w2"):
            self.filter(uid)
        self.woken()
        (reason,) = {self.filter(uid).reason for uid in ("w1", "w2")}
        return reason


@pytest.fixture
def scene() -> Workers:
    """No pod yet."""
    return Workers()


def test_a_leader_with_gpus_is_waited_for(scene):
    """It is one of the three."""
    assert scene.tried() is Reason.GROUP_WAITING
    scene.see("leader")
    scene.filter("leader")
    scene.woken()
    assert scene.filter("w1").reason is None


def test_a_leader_without_gpus_is_not_waited_for(scene):
    """kube-scheduler never calls the extender for it."""
    scene.see("leader", n_gpus=0)
    assert scene.tried() is None


def test_it_may_come_after_the_others(scene):
    """The order of a watch's events is that of the writes, which may be any."""
    assert scene.tried() is Reason.GROUP_WAITING
    scene.see("leader", n_gpus=0)
    assert scene.tried() is None


def test_it_still_counts_once_it_has_a_node(scene):
    """It leaves the watch of pending pods for that of assigned ones, in either order."""
    scene.see("leader", n_gpus=0)
    scene.gateway.handle(PodUpdated(BOUND))
    scene.gateway.handle(PendingDeleted("leader"))
    assert scene.groups.readings.counts(("default", "leaderworkerset/k1")) == (0, 0, 0)
    assert scene.tried() is None


@pytest.mark.parametrize("ends", [PendingDeleted, PodDeleted], ids=["deleted", "ended"])
def test_it_counts_as_long_as_it_is_there(scene, ends):
    """One that is made again may have GPUs."""
    scene.see("leader", n_gpus=0)
    scene.gateway.handle(ends("leader"))
    assert scene.tried() is Reason.GROUP_WAITING


def test_a_list_shows_who_is_still_there(scene):
    """Deletions may be missed between two watches."""
    scene.see("leader", n_gpus=0)
    scene.gateway.handle(PendingListed((), scene.now_s))
    assert scene.tried() is Reason.GROUP_WAITING


def test_one_that_is_being_deleted_does_not_count_beside_its_replacement(scene):
    """A LeaderWorkerSet makes a group again under its name: less two, a part would start."""
    scene.gateway.handle(PodUpdated(BOUND))
    scene.gateway.handle(PodUpdated(replace(BOUND, resource_version="2", deletion_grace_s=30)))
    scene.see("new leader", n_gpus=0)
    scene.see("w1")
    scene.filter("w1")
    scene.woken()
    assert scene.filter("w1").reason is Reason.GROUP_WAITING
    assert scene.tried() is None
    assert replay(scene.lines).difference is None


@pytest.mark.parametrize(
    ("listed", "reason"), [((), Reason.GROUP_WAITING), (("leader",), None)], ids=["gone", "there"]
)
def test_a_list_shows_who_still_has_a_node(scene, listed, reason):
    """The end of one may be missed between two watches; it has no devices that would be freed."""
    scene.gateway.handle(PodUpdated(BOUND))
    scene.gateway.handle(PodsListed(tuple(replace(BOUND, uid=uid) for uid in listed)))
    assert scene.tried() is reason
    assert replay(scene.lines).difference is None


def test_the_size_that_is_shown_is_that_of_pods_with_gpus(scene):
    """2 of 2 members are there, not 2 of 3."""
    scene.see("leader", n_gpus=0)
    scene.see("w1", "w2")
    assert scene.groups.readings.counts(("default", "leaderworkerset/k1")) == (2, 0, 2)


def test_a_pod_of_no_group_changes_nothing(scene):
    """Whether its marks are gone, or it never had any."""
    scene.see("leader", n_gpus=0)
    scene.gateway.handle(PodUpdated(facts("other", may_request=False)))
    plain = replace(scene.pending("leader", n_gpus=0), labels={}, annotations={})
    scene.gateway.handle(PendingUpdated(plain, scene.now_s))
    assert scene.tried() is Reason.GROUP_WAITING


def test_filter_answers_all_nodes_for_a_pod_without_gpus(scene):
    """Should kube-scheduler call for one, nothing waits."""
    assert scene.filter("leader", n_gpus=0).n_named == len(scene.names)
