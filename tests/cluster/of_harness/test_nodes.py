"""What the tests' own nodes, pods and judge are worth: as real as they claim, and repeatable."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace

import pytest

from extender.embedded import (
    ClusterSpec,
    lay_out,
    node_manifest,
    parse_cluster,
    topology_text,
)
from extender.embedded.spec import NodeGroup
from tests.cluster.control.api import open_api
from tests.cluster.fleet.checker import Change, Checker, FaultKind, Follower, current_revision
from tests.cluster.fleet.judge import Judge
from tests.cluster.fleet.nodes import FLEET, create_nodes
from tests.cluster.fleet.stand_in import StandIn
from tests.cluster.fleet.workload import PODS, Mix, arrivals, make_pod, pod_path
from topology.model import decode_topology
from topology.recordings import load_recording
from topology.value import topology_digest

pytestmark = [pytest.mark.cluster, pytest.mark.own_plane]

LONE = ClusterSpec(groups=[NodeGroup(count=1, machine="summit", name="lone")])
MIX = Mix(n_pods=3000, pods_per_s=25, mean_run_s=30, seed=7)


def seen(manifests):
    """A checker that saw these pods created."""
    checker = Checker()
    for number, manifest in enumerate(manifests, 1):
        name = manifest["metadata"]["name"]
        meta = manifest["metadata"] | {"uid": name}
        value = manifest | {"metadata": meta}
        checker.see(Change(number, 0.0, f"/registry/pods/default/{name}", value))
    return checker


def test_nodes_carry_their_recording_with_ids_of_their_own():
    """The annotation is what the node's agent would write: same machine type, other devices."""
    nodes = lay_out(FLEET)
    assert len(nodes) == 300
    ids = [one for node in nodes for one in node.ids]
    assert len(set(ids)) == len(ids) == 2400
    for node in nodes[::17]:
        read = decode_topology(topology_text(node) or "")
        assert tuple(gpu.uuid for gpu in read.gpus) == node.ids
        assert topology_digest(read) == topology_digest(load_recording(node.group))


def test_unhealthy_devices_are_reported_and_not_allocatable():
    """As a kubelet whose plugin lists them Unhealthy."""
    node = lay_out(parse_cluster("1x dgx-h100"))[0]
    bad = replace(node, unhealthy=node.ids[:2])
    manifest = node_manifest(bad)
    assert manifest["status"]["capacity"]["nvidia.com/gpu"] == "8"
    assert manifest["status"]["allocatable"]["nvidia.com/gpu"] == "6"
    report = json.loads(manifest["metadata"]["annotations"]["coterie.gpu/devices"])
    assert [one["id"] for one in report["unhealthy"]] == list(node.ids[:2])


def test_the_stream_of_pods_is_repeatable_and_mixed():
    """The same seed is the same stream; everything that a pod can request occurs often."""
    stream = arrivals(MIX)
    assert stream == arrivals(MIX)
    assert stream != arrivals(Mix(n_pods=3000, pods_per_s=25, mean_run_s=30, seed=8))
    assert len(stream) == 3000
    assert 100 < stream[-1].at_s < 140
    pods = seen(one.manifest for one in stream).unbound()
    sizes = [pod.size for pod in pods]
    assert all(sizes.count(size) > 100 for size in (0, 1, 2, 4, 8))
    wishes = [wish for pod in pods for wish in pod.wishes]
    for value in ("nvlink", "pcie-switch", "numa", "none"):
        assert wishes.count(("coterie.gpu/affinity", value)) > 100
    assert wishes.count(("coterie.gpu/policy", "required")) > 100
    assert sum(key == "coterie.gpu/min-bandwidth" for key, _ in wishes) > 50
    roles = [request.role.value for pod in pods for request in pod.requests]
    assert all(roles.count(role) > 50 for role in ("init", "sidecar"))


def test_every_pod_of_the_stream_fits_on_some_empty_node():
    """Else the fleet's test could not expect that no pod is left over."""
    nodes = lay_out(FLEET)
    judge = Judge(nodes)
    checker = seen(one.manifest for one in arrivals(MIX))
    for number, node in enumerate(nodes, 1):
        manifest = node_manifest(node)
        checker.see(Change(10_000 + number, 0.0, f"/registry/minions/{node.name}", manifest))
    kinds = {node.group: checker.nodes[node.name] for node in nodes}
    shapes = {pod.shape: pod for pod in checker.unbound() if pod.requests}
    homeless = [
        pod
        for pod in shapes.values()
        if not any(judge.fits(node, node.ids, pod) for node in kinds.values())
    ]
    assert homeless == []


def test_three_hundred_nodes_are_there_and_ready(control_plane):
    """So that every test may make the nodes it needs; how long that took is printed."""

    async def main():
        async with open_api(control_plane.admin) as api:
            begun_s = time.monotonic()
            nodes = await create_nodes(api, FLEET)
            took_s = time.monotonic() - begun_s
            listed = {n["metadata"]["name"]: n for n in (await api.get("/api/v1/nodes"))["items"]}
            assert len(nodes) == 300
            assert all("taints" not in listed[node.name]["spec"] for node in nodes)
            print(f"made in {took_s:.1f} s")  # noqa: T201 - a figure

    asyncio.run(main())


def test_the_stand_in_runs_and_ends_what_is_bound(control_plane):
    """A pod lives through its phases as on a real node, seen by the checker in etcd."""

    async def main():
        phases = []
        short, long = (f"/registry/pods/default/{name}" for name in ("short", "long"))

        class Recorder(Checker):
            def see(self, change):
                super().see(change)
                if change.key == short:
                    phases.append(self.pods[short].phase if short in self.pods else "gone")

        checker = Recorder()
        begin = await current_revision(control_plane.etcd_url) + 1
        async with (
            open_api(control_plane.admin) as api,
            Follower(control_plane.etcd_url, checker, from_revision=begin) as follower,
            StandIn(api),
        ):
            await api.create(PODS, make_pod("short", runs_s=0.2, spec={"nodeName": "elsewhere"}))
            await api.create(PODS, make_pod("long", spec={"nodeName": "elsewhere"}))
            await follower.until(lambda _: "gone" in phases, within_s=60)
            assert list(dict.fromkeys(phases)) == ["Pending", "Running", "Succeeded", "gone"]
            await follower.until(lambda c: c.pods[long].phase == "Running", within_s=60)
            await api.delete(pod_path("long"), grace_s=30)
            await follower.until(lambda c: long not in c.pods, within_s=60)
        assert checker.faults == []

    asyncio.run(main())


def binding(name, node, ids):
    """A Binding with a plan, as any client can write it where no policy forbids it."""
    container = {"name": "main", "resource": "nvidia.com/gpu", "ids": ids}
    plan = {"v": 1, "node": node, "containers": [container], "generation": 0, "score": 0}
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "annotations": {"coterie.gpu/plan": json.dumps(plan)}},
        "target": {"kind": "Node", "name": node},
    }


def test_the_checker_finds_broken_promises_on_a_real_cluster(control_plane):
    """Bound by hand: a device given twice, a plan that is missing, one for another size."""

    async def main():
        checker = Checker()
        async with (
            open_api(control_plane.admin) as api,
            Follower(control_plane.etcd_url, checker) as follower,
        ):
            (node,) = await create_nodes(api, LONE)
            first, second, third, *_ = node.ids
            for name, gpus, ids in (
                ("good", 2, [first, second]),
                ("twice", 2, [second, third]),
                ("few", 2, [third]),
            ):
                await api.create(PODS, make_pod(name, gpus, scheduler="absent-scheduler"))
                await api.create(f"{pod_path(name)}/binding", binding(name, node.name, ids))
            await follower.catch_up()
            for name in ("good", "twice", "few"):
                await api.delete(pod_path(name), grace_s=0)
        found = [(fault.kind, fault.pod) for fault in checker.faults]
        assert found[0] == (FaultKind.OVERLAP, "default/twice")
        assert set(found[1:]) == {
            (FaultKind.WRONG_SIZE, "default/few"),
            (FaultKind.OVERLAP, "default/few"),
        }

    asyncio.run(main())
