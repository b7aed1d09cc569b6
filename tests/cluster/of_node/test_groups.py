"""Groups on real kubelets beside simulated nodes: each member gets just what was planned for it.

The Job controller of Kubernetes makes the members. What the extender planned, what the kubelet of
the node says it gave, what its plugin answered and what the program in the container found must be
the same; whether members are near each other is judged by the nodes' labels alone.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pytest

from extender.embedded.spec import ClusterSpec, NodeGroup
from tests.cluster.fleet.checker import Checker, Follower
from tests.cluster.fleet.group_kinds import jobs_of
from tests.cluster.fleet.nodes import ZONE, node_path
from tests.cluster.fleet.workload import PODS, SCHEDULER
from tests.cluster.loop.loop_jobs import JOBS
from tests.cluster.loop.loop_run import clear_jobs
from tests.cluster.loop.loop_stage import RECORDING, LoopStage, loop_stage
from tests.cluster.node.real_pods import (
    RealPods,
    has_ended,
    is_running,
    real_container,
    real_pod,
    real_pod_spec,
)
from tests.cluster.node.stub_plugin import VARIABLE, held_by
from tests.cluster.programs.containerd import ctr
from topology.annotations import decode_plan
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.cluster.control.control_plane import ControlPlane
    from tests.cluster.fleet.checker import Change
    from tests.cluster.node.kubelet_node import KubeletNode, NodeTools
    from topology.annotations import Plan

pytestmark = [pytest.mark.cluster, pytest.mark.kubelet, pytest.mark.own_plane]

LEAF, SPINE = "fabric.topograph.run/tier-0", "fabric.topograph.run/tier-1"
INDEX = "batch.kubernetes.io/job-completion-index"
JOB_INDEX = "jobset.sigs.k8s.io/job-global-index"
HERE = "zone-a"
REAL = {"left": "leaf-0", "right": "leaf-1"}
"""Nodes with real kubelets, of one spine switch, and the leaf switch of each."""
SIMULATED = {
    "beside-left": "leaf-0",
    "beside-right": "leaf-1",
    "far-a": "leaf-2",
    "far-b": "leaf-2",
}
"""Beside each real one another, and a leaf of two nodes under another spine switch."""
SPINES = {"leaf-0": "spine-0", "leaf-1": "spine-0", "leaf-2": "spine-1"}
N_GPUS = 8
"""Of each node. Groups here take all four nodes of the first spine switch, so the real ones too."""
REPLACED_WITHIN_S = 180.0
"""A Job makes other pods 20 s after two have failed: 10 s, doubled with each (Kubernetes,
DefaultJobPodFailureBackOff)."""


class History(Checker):
    """All that etcd has seen; also the revisions in which pods got a node, and ended or went."""

    def __init__(self) -> None:
        super().__init__()
        self.bound_in: dict[str, int] = {}
        self.ended_in: dict[str, int] = {}

    def see(self, change: Change) -> None:
        """Take one change."""
        before = self.pods.get(change.key)
        super().see(change)
        pod = self.pods.get(change.key)
        if pod is not None and pod.node is not None:
            self.bound_in.setdefault(pod.name, change.revision)
        if before is not None and before.is_live and (pod is None or not pod.is_live):
            self.ended_in[before.name] = change.revision


@dataclass(frozen=True)
class Member:
    """A member of a group as the API server has it, which runs."""

    pod: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.pod["metadata"]["name"])

    @property
    def rank(self) -> tuple[int, int]:
        """Its place: that of its Job among those of the JobSet, and its own in the Job."""
        labels = self.pod["metadata"]["labels"]
        return int(labels.get(JOB_INDEX, 0)), int(labels[INDEX])

    @property
    def node(self) -> str:
        """Where it is."""
        return str(self.pod["spec"]["nodeName"])

    @property
    def plan(self) -> Plan:
        """What was planned for it."""
        return decode_plan(self.pod["metadata"]["annotations"][names.PLAN])

    @property
    def planned(self) -> dict[str, tuple[str, ...]]:
        """The devices of each container by that plan."""
        return {one.name: tuple(sorted(one.ids)) for one in self.plan.containers}

    @property
    def requested(self) -> dict[str, int]:
        """How many each of its containers requests."""
        containers = self.pod["spec"]["containers"]
        return {
            one["name"]: int(one["resources"]["limits"]["nvidia.com/gpu"]) for one in containers
        }


@dataclass
class Fabric:
    """Real and simulated nodes under leaf and spine switches, and what Jobs make on them."""

    loop: LoopStage
    tools: NodeTools
    ids: Mapping[str, tuple[str, ...]]
    """The devices of the simulated nodes."""

    @property
    def plane(self) -> ControlPlane:
        """The control plane."""
        return self.loop.plane

    @property
    def real(self) -> dict[str, KubeletNode]:
        """The nodes with kubelets, by name."""
        return {node.name: node for node in self.loop.nodes}

    def leaf(self, node: str) -> str:
        """The leaf switch of a node, by its label."""
        found = self.plane.client.get(node_path(node)).raise_for_status().json()
        return str(found["metadata"]["labels"][LEAF])

    def pods(self, group: str) -> list[dict[str, Any]]:
        """The pods of a group, but for those that have ended."""
        listed = self.plane.client.get(PODS).raise_for_status().json()["items"]
        return [
            pod
            for pod in listed
            if pod["metadata"]["annotations"].get("coterie.gpu/group") == group
            and not has_ended(pod)
        ]

    def running(self, group: str, n_members: int, *, within_s: float = 60.0) -> list[Member]:
        """Its members by rank, once so many run."""
        found: list[dict[str, Any]] = []

        def are_running() -> bool:
            found[:] = self.pods(group)
            return len(found) == n_members and all(is_running(pod) for pod in found)

        self.loop.until(are_running, within_s=within_s)
        return sorted(map(Member, found), key=lambda one: one.rank)

    def history(self) -> History:
        """All that was written so far."""

        async def read() -> History:
            seen = History()
            async with Follower(self.plane.etcd_url, seen) as follower:
                await follower.catch_up()
            return seen

        return asyncio.run(read())

    @contextmanager
    def group(self, manifest: Mapping[str, Any]) -> Iterator[str]:
        """Its name, while there are the Jobs of the manifest."""
        for job in jobs_of(manifest):
            self.plane.client.post(JOBS, json=job).raise_for_status()
        try:
            yield str(manifest["metadata"]["name"])
        finally:
            clear_jobs(self.plane)

    def kill(self, member: Member) -> None:
        """SIGKILL for the program of its only container, which runs on a real kubelet."""
        (status,) = member.pod["status"]["containerStatuses"]
        container = status["containerID"].removeprefix("containerd://")
        space = self.real[member.node].space
        ctr(space, self.tools.programs, "tasks", "kill", "--signal", "SIGKILL", container)

    def check(self, members: Sequence[Member], group: str) -> None:
        """Each has what was planned for it, by all who know; and no device has two holders."""
        for one in members:
            plan = one.plan
            assert plan.node == one.node
            assert plan.group is not None
            assert plan.group.name == group
            assert {name: len(ids) for name, ids in one.planned.items()} == one.requested
            if one.node in self.real:
                self._check_given(one)
            else:
                assert set(plan.ids) <= set(self.ids[one.node])
        planned = Counter(id_ for one in members for id_ in one.plan.ids)
        assert set(planned.values()) == {1}
        assert self.loop.reported() == set()
        assert self.history().faults == []

    def _check_given(self, member: Member) -> None:
        node = self.real[member.node]
        assert held_by(node, member.name) == member.planned
        answered = {
            event["container"]: tuple(event["ids"])
            for event in self.loop.plugins[node.name].events("allocated")
            if event.get("pod_uid") == member.pod["metadata"]["uid"]
        }
        assert answered == member.planned
        for container, ids in member.planned.items():
            seen = node.given(member.pod, container)["environment"][VARIABLE]
            assert tuple(sorted(seen.split(","))) == ids

    def check_near(self, members: Sequence[Member], shares: Sequence[int]) -> None:
        """They have so many nodes of one spine switch, and each node and leaf a range of ranks."""
        nodes = [one.node for one in members]
        assert sorted(Counter(nodes).values()) == list(shares)
        assert len([node for node, _ in groupby(nodes)]) == len(shares)
        leaves = [leaf for leaf, _ in groupby(self.leaf(node) for node in nodes)]
        assert sorted(leaves) == ["leaf-0", "leaf-1"]


@pytest.fixture(scope="module")
def fabric(control_plane: ControlPlane, node_tools: NodeTools) -> Iterator[Fabric]:
    """Two real nodes and four simulated ones."""
    groups = [
        NodeGroup(count=1, machine=RECORDING, name=name, labels=_switches(leaf))
        for name, leaf in SIMULATED.items()
    ]
    with loop_stage(control_plane, node_tools, list(REAL)) as stage:
        for name, leaf in REAL.items():
            control_plane.client.patch(
                node_path(name),
                json={"metadata": {"labels": _switches(leaf) | {ZONE: HERE}}},
                headers={"Content-Type": "application/merge-patch+json"},
            ).raise_for_status()
        stage.start_plugins()
        with stage.beside(ClusterSpec(groups=groups, zones=[HERE])) as simulated:
            yield Fabric(stage, node_tools, {node.name: node.ids for node in simulated})


def _switches(leaf: str) -> dict[str, str]:
    return {LEAF: leaf, SPINE: SPINES[leaf]}


def job_of(
    group: str, n_members: int, containers: Sequence[Mapping[str, Any]], **keys: str
) -> dict[str, Any]:
    """An Indexed Job whose pods are members of a group, until they are stopped."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": group, "namespace": "default"},
        "spec": _job_spec(n_members, containers, _keys(group, n_members, **keys)),
    }


def _job_spec(
    n_pods: int, containers: Sequence[Mapping[str, Any]], annotations: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "completionMode": "Indexed",
        "completions": n_pods,
        "parallelism": n_pods,
        "template": {
            "metadata": {"annotations": dict(annotations)},
            "spec": real_pod_spec(containers, schedulerName=SCHEDULER),
        },
    }


def _keys(group: str, n_members: int, **keys: str) -> dict[str, str]:
    wishes = {"group": group, "group-size": str(n_members)}
    wishes |= {f"group-{key}": text for key, text in keys.items()}
    return {f"coterie.gpu/{key}": text for key, text in wishes.items()}


def _scheduled(pod: Mapping[str, Any]) -> dict[str, Any]:
    conditions = pod["status"].get("conditions", [])
    return next((dict(one) for one in conditions if one["type"] == "PodScheduled"), {})


def test_an_indexed_job_starts_whole_on_real_and_simulated_nodes(fabric: Fabric):
    """While one of four nodes is taken none of the members starts; then all do, rank by rank."""
    pods = RealPods(fabric.plane)
    on_right = {"kubernetes.io/hostname": "right"}
    before = real_container("main", N_GPUS)
    pods.create(real_pod("before", before, nodeSelector=on_right, schedulerName=SCHEDULER))
    pods.until("before", is_running)
    job = job_of("ring", 8, [real_container("main", 4)], domain="spine", policy="required")

    def has_no_room() -> bool:
        """All are here, and a plan found no place for them."""
        answer = fabric.loop.cast.extender.get("/api/v1/groups/default/ring")
        if answer.is_error:
            return False
        shown = answer.json()
        return (shown["n_here"], shown["reason_label"]) == (8, "group_no_room")

    with fabric.group(job) as group:
        fabric.loop.until(has_no_room)
        assert [pod for pod in fabric.pods(group) if "nodeName" in pod["spec"]] == []
        pods.delete("before")
        members = fabric.running(group, 8)
        assert [one.rank for one in members] == [(0, k) for k in range(8)]
        assert [one.plan.group and one.plan.group.rank for one in members] == list(range(8))
        fabric.check(members, group)
        fabric.check_near(members, [2, 2, 2, 2])
    history = fabric.history()
    bound_in = [history.bound_in[one.name] for one in members]
    assert min(bound_in) > history.ended_in["before"]
    times = [_scheduled(one.pod)["lastTransitionTime"] for one in members]
    first, *_, last = sorted(datetime.fromisoformat(text) for text in times)
    timeout = fabric.loop.cast.config["extenders"][0]["httpTimeout"]
    assert (last - first).total_seconds() < float(timeout.removesuffix("s"))


def test_the_jobs_of_a_jobset_are_one_group(fabric: Fabric):
    """Two replicated jobs, three Jobs, pods with two containers; ranks go on from Job to Job."""
    containers = [real_container("trainer", 3), real_container("loader", 1)]
    keys = _keys("set", 8)
    manifest = {
        "kind": "JobSet",
        "metadata": {"name": "set", "namespace": "default"},
        "spec": {
            "replicatedJobs": [
                {
                    "name": name,
                    "replicas": replicas,
                    "template": {"spec": _job_spec(n_pods, containers, keys)},
                }
                for name, replicas, n_pods in (("driver", 1, 2), ("workers", 2, 3))
            ]
        },
    }
    with fabric.group(manifest) as group:
        members = fabric.running(group, 8)
        ranks = [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]
        assert [one.rank for one in members] == ranks
        fabric.check(members, group)
        fabric.check_near(members, [2, 2, 2, 2])


def test_members_that_fail_come_back_to_their_nodes(fabric: Fabric):
    """One on each real node is killed; there is room elsewhere in the domain, and they change not.

    The Job replaces both; the others run on, and each new one has what was planned for it.
    """
    with fabric.group(job_of("mended", 7, [real_container("main", 4)])) as group:
        before = fabric.running(group, 7)
        fabric.check(before, group)
        fabric.check_near(before, [1, 2, 2, 2])
        dead = [next(one for one in before if one.node == node) for node in REAL]
        for one in dead:
            fabric.kill(one)
        gone = {one.name for one in dead}
        fabric.loop.until(lambda: not gone & {p["metadata"]["name"] for p in fabric.pods(group)})
        after = fabric.running(group, 7, within_s=REPLACED_WITHIN_S)
        assert [(one.rank, one.node) for one in after] == [(one.rank, one.node) for one in before]
        kept = {one.name for one in before} - gone
        assert {one.name for one in after} & {one.name for one in before} == kept
        fabric.check(after, group)
