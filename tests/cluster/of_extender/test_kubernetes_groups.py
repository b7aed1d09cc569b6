"""Kubernetes' own groups on the real scheduler with its alpha gates: PodGroups and placements.

Kubernetes waits for the members and Coterie chooses: no two of one cycle count on the same GPUs.
Only 1.36 serves this version of the API and the field `schedulingGroup`.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import Any

import pytest

from extender.embedded import ClusterSpec, parse_cluster
from tests.cluster.control.control_plane import ControlPlane
from tests.cluster.fleet.nodes import node_path
from tests.cluster.fleet.stage import SOON_S, play, start_cast
from tests.cluster.fleet.workload import PODS, make_pod

pytestmark = pytest.mark.cluster

GATES = "GenericWorkload=true,GangScheduling=true,TopologyAwareWorkloadScheduling=true"
GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
FOUR = parse_cluster("4x dgx-h100")
A_WHILE_S = 4.0
"""Long enough for thousands of cycles of a group that does not fit."""
NVLINK = {"coterie.gpu/affinity": "nvlink", "coterie.gpu/policy": "required"}
RACK = "example.com/rack"


@pytest.fixture(scope="module")
def cast(binaries, tmp_path_factory):
    """Extender and scheduler on a control plane with the gates."""
    if binaries.minor != "1.36":
        pytest.skip(f"Kubernetes {binaries.minor} has other groups than v1alpha2")
    flags = ("--runtime-config=scheduling.k8s.io/v1alpha2=true", f"--feature-gates={GATES}")
    folder = tmp_path_factory.mktemp("gated-plane")
    with ControlPlane(binaries, folder, api_server_flags=flags) as plane:
        made = start_cast(plane, scheduler_flags=(f"--feature-gates={GATES}",))
        yield made
        made.stop()


def member(group, number, gpus, **fields):
    """A pod of a PodGroup."""
    name = f"{group}-{number}"
    return make_pod(name, gpus, spec={"schedulingGroup": {"podGroupName": group}}, **fields)


def names_of(group, size):
    """The names of its pods."""
    return [f"{group}-{number}" for number in range(size)]


def n_bound(played, group, size):
    """How many of them have a node in etcd."""
    names = [name for name in names_of(group, size) if played.has(name)]
    return sum(played.pod(name).node is not None for name in names)


async def submit(played, group, size, gpus, *, minimum=None, key=None, **fields):
    """A PodGroup and its pods."""
    spec: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": minimum or size}}}
    if key is not None:
        spec["schedulingConstraints"] = {"topology": [{"key": key}]}
    await played.api.create(
        GROUPS,
        {
            "apiVersion": "scheduling.k8s.io/v1alpha2",
            "kind": "PodGroup",
            "metadata": {"name": group, "namespace": "default"},
            "spec": spec,
        },
    )
    for number in range(size):
        await played.api.create(PODS, member(group, number, gpus, **fields))


async def label_racks(played):
    """Two nodes in each rack."""
    for name, rack in racks(played).items():
        labels = {"metadata": {"labels": {RACK: rack}}}
        await played.api.patch(node_path(name), labels)


def plans(played, group, size):
    """The plans of its members."""
    return [json.loads(played.pod(name).plan or "") for name in names_of(group, size)]


def made_of(*unhealthy, count=1, name=None):
    """Machines with some bad GPUs."""
    group = {"count": count, "machine": "dgx-1-v100", "unhealthy": list(unhealthy), "name": name}
    return ClusterSpec.model_validate({"groups": [group]})


def test_of_a_pair_none_is_bound_where_one_set_is_free(cast):
    """GPUs for both are free, by count, of which one pair has NVLink; others are not kept out."""

    async def main():
        async with play(cast, made_of(3, 4, 5, 6)) as played:
            await submit(played, "pair", 2, 2, annotations=NVLINK)
            await asyncio.sleep(A_WHILE_S)
            assert n_bound(played, "pair", 2) == 0
            await played.create(make_pod("other", 1))
            await played.bound("other")
            assert n_bound(played, "pair", 2) == 0
            await played.add_nodes(made_of(name="second"))
            await played.bound(*names_of("pair", 2))
            names = {plan["group"]["name"] for plan in plans(played, "pair", 2)}
            assert names == {"podgroup/pair"}

    asyncio.run(main())


def test_sets_that_fit_only_jointly_are_found(cast):
    """Alone the first would take GPUs 1 and 2, the faster link, and leave 0 and 5 without one."""

    async def main():
        async with play(cast, made_of(3, 4, 6, 7)) as played:
            await submit(played, "joint", 2, 2, annotations=NVLINK)
            await played.bound(*names_of("joint", 2))

    asyncio.run(main())


@pytest.mark.parametrize("key", [None, RACK], ids=["anywhere", "within a rack"])
def test_four_members_are_bound_near_each_other(cast, key):
    """Two fill a node each half; with a key each rack is simulated, and one is chosen."""

    async def main():
        async with play(cast, FOUR) as played:
            await label_racks(played)
            group = f"four-{'any' if key is None else 'rack'}"
            await submit(played, group, 4, 4, key=key)
            await played.bound(*names_of(group, 4))
            nodes = {played.pod(name).node or "" for name in names_of(group, 4)}
            assert len(nodes) == 2
            if key is not None:
                assert len({racks(played)[node] for node in nodes}) == 1

    asyncio.run(main())


def test_of_two_groups_that_do_not_fit_together_one_is_whole(cast):
    """The other is tried again and again, and takes its place when it is free."""

    async def main():
        async with play(cast, FOUR) as played:
            for group in ("x", "y"):
                await submit(played, group, 3, 8)
            await played.until(lambda: 3 in {n_bound(played, one, 3) for one in "xy"})
            await asyncio.sleep(A_WHILE_S)
            assert sorted(n_bound(played, one, 3) for one in "xy") == [0, 3]
            whole = "x" if n_bound(played, "x", 3) else "y"
            await played.create(make_pod("single", 8))
            await played.bound("single")
            await played.delete(*names_of(whole, 3))
            other = "y" if whole == "x" else "x"
            await played.bound(*names_of(other, 3))

    asyncio.run(main())


def test_a_member_whose_binding_is_refused_is_bound_later(cast):
    """The others are there; it is placed when the API server lets it be bound."""

    async def main():
        async with play(cast, FOUR) as played:
            async with barred(played, "refused-1"):
                await submit(played, "refused", 3, 4)
                await played.bound("refused-0", "refused-2")
                await asyncio.sleep(1.0)
                assert played.pod("refused-1").node is None
            await played.bound("refused-1")

    asyncio.run(main())


def racks(played):
    """The rack of each node, as `label_racks` says."""
    return {node.name: f"r{i // 2}" for i, node in enumerate(played.nodes)}


@asynccontextmanager
async def barred(played, name):
    """The API server refuses the Binding of a pod while this lasts."""
    plane = played.cast.control_plane
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "bar"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["pods/binding"],
                    }
                ]
            },
            "validations": [{"expression": f"!(request.name in ['{name}', 'probe'])"}],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "bar"},
        "spec": {"policyName": "bar", "validationActions": ["Deny"]},
    }
    objects = json.dumps({"apiVersion": "v1", "kind": "List", "items": [policy, binding]})
    await played.create(make_pod("probe", scheduler="none"))
    await asyncio.to_thread(plane.kubectl, "apply", "-f", "-", stdin=objects)
    try:
        async with asyncio.timeout(SOON_S):
            while not await asyncio.to_thread(is_refused, plane):  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.1)
        yield
    finally:
        await asyncio.to_thread(plane.kubectl, "delete", "-f", "-", stdin=objects)


def is_refused(plane):
    """Whether the policy is in force, which takes a second: what a Binding would lead to."""
    content = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "probe"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "dgx-h100-0"},
    }
    path = f"{PODS}/probe/binding"
    return plane.client.post(path, params={"dryRun": "All"}, json=content).is_error
