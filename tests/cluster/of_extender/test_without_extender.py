"""What still works while the extender is dead or hangs, and what its return brings."""

from __future__ import annotations

import asyncio
import json

import pytest

from extender.embedded import parse_cluster
from tests.cluster.control.manifests import NAMESPACE, objects
from tests.cluster.fleet.stage import play, start_cast
from tests.cluster.fleet.workload import SCHEDULER, make_pod

pytestmark = pytest.mark.cluster

ONE = parse_cluster("1x dgx-a100")
A_WHILE_S = 8.0
"""Long enough for a pod to be bound, and for a call of 5 s, kube-scheduler's default, to end."""
AT_ONCE_S = 15.0
"""Sooner than the call would end by itself: its httpTimeout is 30 s, of which 9 s have passed."""


@pytest.fixture
def cast(control_plane):
    """Extender and scheduler of one test's own: it kills the extender."""
    made = start_cast(control_plane)
    yield made
    made.stop()


def restricted(pod):
    """The pod as the strictest Pod Security Standard wants it."""
    pod["spec"]["securityContext"] = {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    for container in pod["spec"]["containers"]:
        container["securityContext"] = {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
    return pod


def test_pods_without_gpus_schedule_while_the_extender_is_dead(cast):
    """Those of either profile, and Coterie's own: else it could never be started again."""
    made = [one for one in objects("second-scheduler") if one["kind"] == "Namespace"]
    own_namespace = next(one for one in made if one["metadata"]["name"] == NAMESPACE)
    cast.control_plane.kubectl("apply", "-f", "-", stdin=json.dumps(own_namespace))

    async def main():
        async with play(cast, ONE) as played:
            await asyncio.to_thread(cast.extender.kill)
            await played.create(make_pod("plain", scheduler="default-scheduler"))
            await played.create(make_pod("of-our-profile", scheduler=SCHEDULER))
            own = restricted(make_pod("coterie-extender", scheduler="default-scheduler"))
            own["metadata"]["namespace"] = NAMESPACE
            await played.api.create(f"/api/v1/namespaces/{NAMESPACE}/pods", own)
            await played.bound("plain", "of-our-profile")
            key = f"/registry/pods/{NAMESPACE}/coterie-extender"
            pods = played.checker.pods
            await played.until(lambda: key in pods and pods[key].node is not None)

    asyncio.run(main())


def test_gpu_pods_wait_for_the_extender_and_then_get_their_plans(cast):
    """Without its plan a pod would get any GPUs, so none is bound; nothing is lost either."""

    async def main():
        async with play(cast, ONE) as played:
            await played.create(make_pod("before", 2))
            await played.bound("before")
            await asyncio.to_thread(cast.extender.kill)
            await played.create(make_pod("waiting", 2))
            await played.until(lambda: played.pod("waiting").reason == "SchedulerError")
            assert played.pod("waiting").node is None
            await asyncio.to_thread(cast.extender.start)
            await played.bound("waiting")

    asyncio.run(main())


def test_pods_that_end_while_the_extender_is_dead_are_known_to_have_ended(cast):
    """The ledger is what the API server shows at the start, neither more nor less."""

    async def main():
        async with play(cast, ONE) as played:
            await played.create(make_pod("ends", 4))
            await played.create(make_pod("stays", 4))
            await played.bound("ends", "stays")
            await asyncio.to_thread(cast.extender.kill)
            await played.delete("ends")
            await asyncio.to_thread(cast.extender.start)
            await played.create(make_pod("next", 4))
            await played.bound("next")  # the checker finds it if `stays` lost a device

    asyncio.run(main())


def test_a_hanging_extender_stops_the_loop_until_it_ends(cast):
    """Every verb has httpTimeout, so that the kubelet ends such a process long before that.

    What waits in kube-scheduler's loop then fails at once.
    """

    async def main():
        async with play(cast, ONE) as played:
            cast.extender.pause()
            await played.create(make_pod("asked-about", 8))
            await asyncio.sleep(1.0)
            await played.create(make_pod("plain"))
            await asyncio.sleep(A_WHILE_S)
            assert played.pod("plain").node is None
            await asyncio.to_thread(cast.extender.kill)
            await played.bound("plain", within_s=AT_ONCE_S)
            await asyncio.to_thread(cast.extender.start)
            await played.bound("asked-about")

    asyncio.run(main())
