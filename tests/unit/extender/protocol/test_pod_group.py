"""A pod's group: by its own keys, or inferred from the kinds that a setting names; and its rank."""

from __future__ import annotations

import json
from typing import Any

import pytest

from extender.protocol import (
    GROUP_KINDS,
    GROUP_MARKS,
    PodRequest,
    has_group,
    inferred_group,
    messages,
    parse_pod,
)
from tests.unit.extender.pods import GPU, pod
from topology.annotations import GroupWish

KUEUE = {"kueue.x-k8s.io/pod-group-name": "sweep"}
KUEUE_SIZE = {"kueue.x-k8s.io/pod-group-total-count": "4"}
GANG = "gang.scheduling.koordinator.sh/"
TASK_GROUP = {"yunikorn.apache.org/task-group-name": "workers"}
TASK_GROUPS = "yunikorn.apache.org/task-groups"
LWS = "leaderworkerset.sigs.k8s.io/"
EXCLUSIVE = {f"{LWS}exclusive-topology": "rack"}
INDEX = "batch.kubernetes.io/job-completion-index"
GLOBAL = "jobset.sigs.k8s.io/job-global-index"
REPLICA = "training.kubeflow.org/replica-index"
ROLE = "training.kubeflow.org/replica-type"


def task_groups(content: Any) -> dict[str, str]:
    """The list of task groups as a pod has it."""
    return {TASK_GROUPS: json.dumps(content)}


def parse(content: Any, kinds: tuple[str, ...] = GROUP_KINDS) -> PodRequest:
    """Read a pod."""
    whole = messages.decode(messages.WirePod, json.dumps(content).encode())
    return parse_pod(whole, (GPU,), kinds)


def marked(
    labels: dict[str, str], annotations: dict[str, str], n_gpus: int | None = 4, **own: str
) -> Any:
    """A pod with these labels and annotations."""
    content = pod(n_gpus, **own)
    content["metadata"]["labels"] |= labels
    content["metadata"]["annotations"] |= annotations
    return content


@pytest.mark.parametrize(
    ("labels", "annotations", "name", "size"),
    [
        pytest.param(KUEUE, KUEUE_SIZE, "kueue/sweep", 4, id="Kueue's plain pods"),
        pytest.param(
            {},
            {f"{GANG}name": "ps", f"{GANG}min-available": "3"},
            "koordinator/ps",
            3,
            id="Koordinator's lightweight gang",
        ),
        pytest.param(
            {"applicationId": "app-1"},
            TASK_GROUP | task_groups([{"name": "x"}, {"name": "workers", "minMember": 8}]),
            "yunikorn/app-1/workers",
            8,
            id="a task group of YuniKorn's",
        ),
        pytest.param(
            {},
            TASK_GROUP
            | task_groups([{"name": "workers", "minMember": 2}])
            | {"yunikorn.apache.org/app-id": "app-2"},
            "yunikorn/app-2/workers",
            2,
            id="its application as an annotation",
        ),
        pytest.param(
            {},
            TASK_GROUP | task_groups([{"name": "workers", "minMember": 2}]),
            "yunikorn/workers",
            2,
            id="without an application",
        ),
        pytest.param(
            {f"{LWS}group-key": "0a1b"},
            {f"{LWS}size": "5"},
            "leaderworkerset/0a1b",
            5,
            id="a group of a LeaderWorkerSet",
        ),
    ],
)
def test_kinds_that_say_name_and_size_are_inferred_where_they_are_named(
    labels, annotations, name, size
):
    """By default nothing waits that does not say so in Coterie's own keys."""
    content = marked(labels, annotations)
    assert parse(content).group == GroupWish(name, size, counts_all=True)
    assert parse(content).warnings == ()
    assert parse(content, ()).group is None
    others = tuple(kind for kind in GROUP_KINDS if not name.startswith(kind))
    assert parse(content, others).group is None
    assert has_group(labels, annotations, GROUP_KINDS)
    assert not has_group(labels, annotations, others)


@pytest.mark.parametrize(
    ("labels", "annotations"),
    [
        pytest.param(KUEUE, {}, id="no size"),
        pytest.param({}, KUEUE_SIZE, id="no name"),
        pytest.param(KUEUE, {"kueue.x-k8s.io/pod-group-total-count": "many"}, id="no number"),
        pytest.param(KUEUE, {"kueue.x-k8s.io/pod-group-total-count": "0"}, id="nobody"),
        pytest.param(KUEUE, {"kueue.x-k8s.io/pod-group-total-count": "10000"}, id="too many"),
        pytest.param(
            KUEUE,
            KUEUE_SIZE | {"kueue.x-k8s.io/pod-group-fast-admission": "true"},
            id="Kueue admits them before all are there",
        ),
        pytest.param(
            {f"{LWS}group-key": "0a1b"},
            EXCLUSIVE | {f"{LWS}size": "5"},
            id="workers come when their leader has a node",
        ),
        pytest.param({}, TASK_GROUP, id="only the first pod has the task groups"),
        pytest.param({}, TASK_GROUP | {TASK_GROUPS: "[{"}, id="no JSON"),
        pytest.param({}, TASK_GROUP | task_groups({"workers": 3}), id="no list"),
        pytest.param({}, TASK_GROUP | task_groups([7]), id="no task group"),
        pytest.param(
            {}, TASK_GROUP | task_groups([{"name": "workers", "minMember": "2"}]), id="a text"
        ),
        pytest.param({}, task_groups([{"name": "workers", "minMember": 2}]), id="of none of them"),
    ],
)
def test_what_says_no_name_and_size_is_placed_alone(labels, annotations):
    """A guess would leave the pod waiting for ever."""
    assert parse(marked(labels, annotations)).group is None


def test_own_keys_win():
    """They are this project's, and may say a domain."""
    content = marked(KUEUE, KUEUE_SIZE, group="mine", group_size="2")
    assert parse(content).group == GroupWish("mine", 2)


def test_a_pod_without_gpus_has_a_group_only_where_the_size_counts_it():
    """Own keys count pods with GPUs, and are not even read here."""
    assert parse(marked(KUEUE, KUEUE_SIZE, None)).group == GroupWish(
        "kueue/sweep", 4, counts_all=True
    )
    assert parse(marked({}, {}, None, group="g", group_size="0")).group is None


def test_a_group_of_metadata_is_that_of_the_pod():
    """An assigned pod is known by a few of its labels and annotations, in one mapping."""
    kept = {**KUEUE, **KUEUE_SIZE}
    assert set(kept) <= set(GROUP_MARKS["kueue"])
    assert inferred_group(kept, kept, ("kueue",)) == GroupWish("kueue/sweep", 4, counts_all=True)
    assert set(GROUP_MARKS) == set(GROUP_KINDS)


def test_a_group_that_kubernetes_waits_for_has_no_size():
    """Filter is called in simulations then: nothing may wait or be claimed."""
    content = pod(4, group="g", group_size="3")
    content["spec"]["schedulingGroup"] = {"podGroupName": "train"}
    request = parse(content)
    assert request.group == GroupWish("g")
    assert request.pod_group == "train"
    del content["metadata"]["annotations"]
    assert (parse(content).group, parse(content).pod_group) == (
        GroupWish("podgroup/train"),
        "train",
    )
    content["spec"]["schedulingGroup"] = {}
    assert (parse(content).group, parse(content).pod_group) == (None, "")
    assert parse(pod(4)).pod_group == ""


@pytest.mark.parametrize(
    ("labels", "annotations", "owners", "expected"),
    [
        pytest.param({}, {}, [{"kind": "StatefulSet"}], "podManagementPolicy Parallel", id="set"),
        pytest.param(
            {f"{LWS}group-key": "k"}, EXCLUSIVE, [], "coterie.gpu/group-domain", id="exclusive"
        ),
        pytest.param({f"{LWS}group-key": "k"}, {}, [{"kind": "StatefulSet"}], "", id="workers"),
        pytest.param({}, {}, [{"kind": "Job"}, {}], "", id="a Job's are made at once"),
    ],
)
def test_members_that_come_one_after_the_other_are_warned_about(
    labels, annotations, owners, expected
):
    """The group would never be complete, and nothing else would say why."""
    content = marked(labels, annotations, group="g", group_size="4")
    content["metadata"]["ownerReferences"] = owners
    warnings = parse(content).warnings
    assert [expected in one for one in warnings] == [True] * bool(expected)
    assert all(one.startswith("annotation coterie.gpu/group-size is '4', but") for one in warnings)
    del content["metadata"]["annotations"]["coterie.gpu/group-size"]
    assert parse(content).warnings == ()


@pytest.mark.parametrize(
    ("keys", "warns"),
    [
        pytest.param({"group_policy": "required"}, True, id="no domain"),
        pytest.param({"group_policy": "required", "group_domain": "any"}, True, id="any domain"),
        pytest.param({"group_policy": "required", "group_domain": "leaf"}, False, id="a level"),
        pytest.param({"group_policy": "preferred"}, False, id="nothing is required"),
    ],
)
def test_a_required_domain_that_is_not_named_is_warned_about(keys, warns):
    """The group goes anywhere, and its user believes that it does not."""
    found = parse(pod(4, group="g", **keys)).warnings
    assert ["coterie.gpu/group-domain beside it" in one for one in found] == [True] * warns


@pytest.mark.parametrize(
    ("labels", "rank"),
    [
        pytest.param({INDEX: "3"}, 3, id="an Indexed Job"),
        pytest.param({INDEX: "1", GLOBAL: "2"}, 20_001, id="one of several Jobs of a JobSet"),
        pytest.param({GLOBAL: "2"}, 2, id="a Job of a JobSet that is not indexed"),
        pytest.param({REPLICA: "0", ROLE: "master"}, 0, id="the master of a PyTorchJob"),
        pytest.param({REPLICA: "0", ROLE: "worker"}, 1, id="its first worker"),
        pytest.param({f"{LWS}worker-index": "2", "apps.kubernetes.io/pod-index": "0"}, 2, id="LWS"),
        pytest.param({"apps.kubernetes.io/pod-index": "5"}, 5, id="a StatefulSet"),
        pytest.param({"kueue.x-k8s.io/pod-group-pod-index": "6"}, 6, id="a pod group of Kueue's"),
        pytest.param(
            {"ray.io/worker-group-replica-index": "1", "ray.io/replica-host-index": "3"},
            10_003,
            id="a host of a multi-host worker",
        ),
        pytest.param({INDEX: "x"}, None, id="no number"),
        pytest.param({}, None, id="none"),
    ],
)
def test_the_rank_is_the_place_among_the_members(labels, rank):
    """Neighbours in rank are neighbours in a ring, and should be near each other."""
    assert parse(marked(labels, {}, group="g")).rank == rank


@pytest.mark.parametrize(
    ("size", "name"),
    [
        pytest.param("2", "g/0a1b", id="the size of a replica"),
        pytest.param("1", "g/0a1b", id="of a replica whose leader has no GPUs"),
        pytest.param("4", "g", id="the size of two replicas together"),
    ],
)
def test_each_replica_of_a_leader_worker_set_is_a_group_of_its_own(size, name):
    """Two leaders started as a whole, and the workers of both waited for ever."""
    content = marked(
        {f"{LWS}group-key": "0a1b"},
        {f"{LWS}size": "2", "coterie.gpu/group": "g", "coterie.gpu/group-size": size},
    )
    assert parse(content).group == GroupWish(name, int(size))
