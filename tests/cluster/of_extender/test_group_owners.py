"""Groups whose size stands on a Job, a JobSet or a PodGroup, read with the rights of deploy/.

The Jobs are Kubernetes' own, and their controller makes the pods. JobSet and coscheduling are not
here: their kinds are made of the few fields that are read, and their pods as their controllers do.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from extender.embedded import parse_cluster
from tests.cluster.control.decision_log import assert_replays
from tests.cluster.control.manifests import DEPLOY
from tests.cluster.fleet.stage import EXTENDER_USER, play, start_cast
from tests.cluster.fleet.workload import PODS, make_pod, pod_path

pytestmark = [pytest.mark.cluster, pytest.mark.own_plane]

FOUR = parse_cluster("4x dgx-h100")
KINDS = "indexed-job", "jobset", "coscheduling"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
JOB_SETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
POD_GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"
A_WHILE_S = 4.0
SOON_S = 90.0
"""Long enough for a pod to be placed if it could be."""


def definition(group, version, kind):
    """A CustomResourceDefinition that takes any content."""
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {"name": version, "served": True, "storage": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural},
            "scope": "Namespaced",
            "versions": [{**served, "schema": {"openAPIV3Schema": schema}}],
        },
    }


def grant(plane, kind, namespace):
    """Let the extender read a kind in one namespace alone."""
    role = f"coterie-extender-{kind}"
    bound = f"--clusterrole={role}", f"--user={EXTENDER_USER}", f"--namespace={namespace}"
    plane.kubectl("create", "rolebinding", f"{role}-user", *bound)


@pytest.fixture(scope="module")
def cast(control_plane, tmp_path_factory):
    """Extender and scheduler, the Jobs' controller, and every right in the namespace `default`.

    On kubeadm the extender is a user: docs/install.md binds it to the same ClusterRoles.
    """
    definitions = (
        definition("jobset.x-k8s.io", "v1alpha2", "JobSet"),
        definition("scheduling.x-k8s.io", "v1alpha1", "PodGroup"),
    )
    file = tmp_path_factory.mktemp("definitions") / "definitions.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": definitions}))
    plane = control_plane
    plane.kubectl("apply", "--filename", str(file))
    plane.kubectl("wait", "--for=condition=Established", "--timeout=120s", "--filename", str(file))
    plane.kubectl("apply", "--kustomize", str(DEPLOY / "group-kinds"))
    for kind in KINDS:
        grant(plane, kind, "default")
    for namespace in ("bare", "late"):
        plane.kubectl("create", "namespace", namespace)
    controllers = plane.start_controller_manager("job-controller")
    log = tmp_path_factory.mktemp("decisions") / "decisions.jsonl"
    made = start_cast(plane, "--group-kinds", ",".join(KINDS), decision_log=log)
    yield made
    made.stop()
    controllers.stop()


def indexed_job(name, n_pods, completions=None):
    """An Indexed Job whose pods take a node each."""
    spec = make_pod(name, 8)["spec"] | {"restartPolicy": "Never"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "completionMode": "Indexed",
            "completions": completions or n_pods,
            "parallelism": n_pods,
            "template": {"spec": spec},
        },
    }


def job_set(name, **worker):
    """A JobSet of a driver without GPUs and three workers with eight."""

    def replicated(role, n_pods, n_gpus, **more):
        pod_spec = make_pod(role, n_gpus)["spec"]
        job = {"parallelism": n_pods, "completions": n_pods, "template": {"spec": pod_spec}}
        return {"name": role, "replicas": 1, "template": {"spec": job}, **more}

    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"replicatedJobs": [replicated("driver", 1, 0), replicated("w", 3, 8, **worker)]},
    }


def of_job_set(made, index):
    """A worker as JobSet's and the Job's controllers make it."""
    prefix, name = "jobset.sigs.k8s.io/", made["metadata"]["name"]
    pod = make_pod(f"{name}-w-0-{index}", 8)
    pod["metadata"]["labels"] = {
        f"{prefix}jobset-name": name,
        f"{prefix}jobset-uid": made["metadata"]["uid"],
        f"{prefix}job-global-index": "1",
        "batch.kubernetes.io/job-completion-index": str(index),
    }
    return pod


def of_pod_group(name, pod_group, gpus=8):
    """A member of a PodGroup of coscheduling."""
    pod = make_pod(name, gpus)
    pod["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": pod_group}
    return pod


@asynccontextmanager
async def created(played, path, content):
    """An object, which is gone afterwards: a Job would create its pods again."""
    made = await played.api.create(path, content)
    try:
        yield made
    finally:
        await remove(played, f"{path}/{content['metadata']['name']}")


async def remove(played, path):
    """Delete an object at once: by default a Job waits for the collector of garbage."""
    await played.api.call("DELETE", path, None, propagationPolicy="Background")


async def pods_of(played, job, count, namespace="default"):
    """The names of a Job's pods by their index, once there are as many."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    async with asyncio.timeout(SOON_S):
        while True:
            found = await played.api.get(path, labelSelector=f"batch.kubernetes.io/job-name={job}")
            if len(found["items"]) == count:
                names = [one["metadata"]["name"] for one in found["items"]]
                return sorted(names, key=lambda name: name.rsplit("-", 1)[0])
            await asyncio.sleep(0.1)


def groups_of(played, names):
    """The groups in the plans of pods, with the rank of each."""
    plans = [json.loads(played.pod(name).plan or "") for name in names]
    return [(one["group"]["name"], one["group"].get("rank")) for one in plans if "group" in one]


async def not_inferred(played, owner, namespace="default"):
    """The messages of the Events that say why the pods of an owner have no group, once there."""
    path = f"/api/v1/namespaces/{namespace}/events"
    async with asyncio.timeout(SOON_S):
        while True:
            found = (await played.api.get(path))["items"]
            said = [one["message"] for one in found if one["reason"] == "GroupNotInferred"]
            said = [one for one in said if f" {namespace}/{owner} " in one]
            if said:
                return said
            await asyncio.sleep(0.1)


def test_the_pods_of_an_indexed_job_are_a_group(cast):
    """Of a Job that fits all have a node, by rank; of one that does not, none has."""

    async def main():
        async with play(cast, FOUR) as played:
            async with created(played, JOBS, indexed_job("train", 3)) as job:
                names = await pods_of(played, "train", 3)
                await played.bound(*names)
                group = f"indexed-job/train/{job['metadata']['uid'][:8]}"
                assert groups_of(played, names) == [(group, i) for i in range(3)]
                await cannot_start(played)
            async with created(played, JOBS, indexed_job("late", 2)):
                late = await pods_of(played, "late", 2)
                await played.delete(*names)
                await played.bound(*late)

    asyncio.run(main())


async def cannot_start(played):
    """A Job of two where one node is free."""
    async with created(played, JOBS, indexed_job("wide", 2)):
        names = await pods_of(played, "wide", 2)
        for name in names:
            assert "waits for its group" in await played.refused(name)
        await asyncio.sleep(A_WHILE_S)
        assert [played.pod(name).node for name in names] == [None, None]


def test_a_failed_pod_of_a_job_is_replaced_alone(cast):
    """The Job has four pods, three of which have their nodes."""

    async def main():
        async with (
            play(cast, FOUR) as played,
            created(played, JOBS, indexed_job("train", 4)) as job,
        ):
            names = await pods_of(played, "train", 4)
            await played.bound(*names)
            node = played.pod(names[2]).node
            await played.api.end(pod_path(names[2]))
            await played.gone(names[2])
            again = (await pods_of(played, "train", 4))[2]
            assert again != names[2]
            (pod,) = await played.bound(again)
            assert pod.node == node
            group = f"indexed-job/train/{job['metadata']['uid'][:8]}"
            assert groups_of(played, [again]) == [(group, 2)]

    asyncio.run(main())


def test_a_job_of_more_completions_than_pods_at_a_time_is_none(cast):
    """Each of its pods starts where there is room."""

    async def main():
        async with (
            play(cast, FOUR) as played,
            created(played, JOBS, indexed_job("queue", 5, completions=9)),
        ):
            names = await pods_of(played, "queue", 5)

            def bound():
                return [one for one in names if played.has(one) and played.pod(one).node]

            await played.until(lambda: len(bound()) == 4)
            assert groups_of(played, bound()) == []

    asyncio.run(main())


def test_the_workers_of_a_job_set_wait_for_each_other(cast):
    """Its driver without GPUs counts nothing: it may have ended long ago."""

    async def main():
        async with (
            play(cast, FOUR) as played,
            created(played, JOB_SETS, job_set("sweep")) as made,
        ):
            workers = [of_job_set(made, index) for index in range(3)]
            names = [one["metadata"]["name"] for one in workers]
            for one in workers[:2]:
                await played.create(one)
                assert "members are missing" in await played.refused(one["metadata"]["name"])
            await played.create(workers[2])
            await played.bound(*names)
            name = f"jobset/sweep/{made['metadata']['uid'][:8]}"
            assert groups_of(played, names) == [(name, 10_000 + i) for i in range(3)]

    asyncio.run(main())


def test_a_job_set_that_creates_its_pods_one_by_one_is_never_a_group(cast):
    """They would wait for ever; an Event says why they do not."""

    async def main():
        async with play(cast, FOUR) as played:
            depends = [{"name": "driver", "status": "Ready"}]
            async with created(played, JOB_SETS, job_set("chain", dependsOn=depends)) as made:
                worker = of_job_set(made, 0)
                await played.create(worker)
                await played.bound(worker["metadata"]["name"])
                (said,) = await not_inferred(played, "chain")
                assert "the pods of JobSet default/chain are placed without a group" in said
                assert "spec.replicatedJobs[1] has dependsOn" in said

    asyncio.run(main())


def test_a_pod_group_counts_its_pods_without_gpus(cast):
    """Three must be there, of which a launcher needs none; the PodGroup may come after a pod."""

    async def main():
        async with play(cast, FOUR) as played:
            await played.create(of_pod_group("launcher", "pg", gpus=0))
            await played.create(of_pod_group("a", "pg"))
            content = {
                "apiVersion": "scheduling.x-k8s.io/v1alpha1",
                "kind": "PodGroup",
                "metadata": {"name": "pg"},
                "spec": {"minMember": 3},
            }
            async with created(played, POD_GROUPS, content):
                assert "members are missing" in await played.refused("a")
                await asyncio.sleep(A_WHILE_S)
                assert played.pod("a").node is None
                await played.create(of_pod_group("b", "pg"))
                await played.bound("a", "b", "launcher")
                assert groups_of(played, ["a", "b"]) == [("coscheduling/pg", None)] * 2

    asyncio.run(main())


def test_without_the_right_pods_are_placed_alone_and_an_event_names_it(cast):
    """In another namespace, where it was never granted."""
    jobs = JOBS.replace("default", "bare")

    async def main():
        async with (
            play(cast, FOUR) as played,
            created(played, jobs, indexed_job("train", 5)),
        ):
            names = await pods_of(played, "train", 5, "bare")
            await played.until(lambda: len(with_node(played, "bare", names)) == 4)
            (said,) = await not_inferred(played, "train", "bare")
            assert "the pods of Job bare/train are placed without a group" in said
            assert "may not get jobs.batch in namespace bare" in said

    asyncio.run(main())


def test_members_that_were_placed_alone_are_not_waited_for(cast):
    """The right comes late: one of five has no node, and starts when another has ended well."""
    jobs = JOBS.replace("default", "late")

    async def main():
        async with (
            play(cast, FOUR) as played,
            created(played, jobs, indexed_job("train", 5)) as job,
        ):
            names = await pods_of(played, "train", 5, "late")
            await played.until(lambda: len(with_node(played, "late", names)) == 4)
            await asyncio.to_thread(cast.extender.kill)
            await asyncio.to_thread(grant, cast.control_plane, "indexed-job", "late")
            await asyncio.to_thread(cast.extender.start)
            before = with_node(played, "late", names)
            (last,) = set(names) - set(before)
            path = f"/api/v1/namespaces/late/pods/{before[0]}/status"
            await played.api.patch(path, {"status": {"phase": "Succeeded"}})
            await played.until(lambda: with_node(played, "late", [last]))
            text = played.checker.pods[f"/registry/pods/late/{last}"].plan
            assert text is not None
            plan = json.loads(text)
            assert plan["group"]["name"] == f"indexed-job/train/{job['metadata']['uid'][:8]}"

    asyncio.run(main())


def with_node(played, namespace, names):
    """Which of the pods of a namespace have a node."""
    pods = {name: played.checker.pods.get(f"/registry/pods/{namespace}/{name}") for name in names}
    return [name for name, pod in pods.items() if pod is not None and pod.node is not None]


def test_each_of_many_jobs_is_read_once(cast):
    """However many come at once, and whatever becomes of their pods; few at a time.

    The extender starts when all pods are there, and kube-scheduler when all Jobs were read: one
    that was read before its second pod was seen, since filter was called for the first, would
    rightly be read again.
    """
    count = 100

    async def main():
        async with play(cast, FOUR) as played:
            for program in (cast.scheduler, cast.extender):
                await asyncio.to_thread(program.kill)
            before = await n_reads(played)
            jobs = [indexed_job(f"many-{i}", 2) for i in range(count)]
            for one in jobs:  # another controller's, so that the pods are these alone
                one["spec"]["managedBy"] = "example.com/none"
            made = await asyncio.gather(*(played.api.create(JOBS, one) for one in jobs))
            await played.api.create_all(PODS, [of_job(one, i) for one in made for i in range(2)])
            await asyncio.to_thread(cast.extender.start)
            await all_read(played, before + count)
            await asyncio.to_thread(cast.scheduler.start)
            await played.until(lambda: sum(is_bound(played, one) for one in made) == 2)
            await asyncio.sleep(A_WHILE_S)
            assert await n_reads(played) <= before + count + 2
            await asyncio.gather(
                *(remove(played, f"{JOBS}/{one['metadata']['name']}") for one in made)
            )

    asyncio.run(main())


def of_job(job, index):
    """A pod of a Job, as its controller makes it."""
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    prefix = "batch.kubernetes.io/"
    pod = make_pod(f"{name}-{index}", 8)
    pod["metadata"]["labels"] = {
        f"{prefix}job-name": name,
        f"{prefix}controller-uid": uid,
        f"{prefix}job-completion-index": str(index),
    }
    return pod


def is_bound(played, job):
    """Whether both pods of a Job have their node; not one alone."""
    pods = [f"{job['metadata']['name']}-{i}" for i in range(2)]
    nodes = [played.has(one) and played.pod(one).node is not None for one in pods]
    return all(nodes)


async def all_read(played, count):
    """Wait until the API server was asked so often."""
    async with asyncio.timeout(60.0):
        while True:
            if await n_reads(played) >= count:
                return
            await asyncio.sleep(0.2)


async def n_reads(played):
    """How many times the API server was asked for one Job."""
    text = await played.api.get("/metrics")
    return sum(
        int(float(line.rsplit(" ", 1)[1]))
        for line in text.splitlines()
        if line.startswith("apiserver_request_total{")
        and all(one in line for one in ('resource="jobs"', 'verb="GET"', 'code="200"'))
    )


def test_the_decisions_replay(cast):
    """What was read is in the log."""

    async def main():
        async with play(cast, FOUR) as played, created(played, JOBS, indexed_job("logged", 2)):
            await played.bound(*await pods_of(played, "logged", 2))

    asyncio.run(main())
    cast.extender.stop()
    try:
        assert '"owner_read"' in cast.decision_log.read_text(encoding="utf-8")
        assert_replays(cast.decision_log)
    finally:
        cast.extender.start()
