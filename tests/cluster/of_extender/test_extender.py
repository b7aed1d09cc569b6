"""What only the shells of the service mode do: replicas over mutual TLS, rotated certificates."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from extender.embedded import parse_cluster
from tests.cluster.fleet.service import LOOPBACK, SOON_S, Service
from tests.cluster.fleet.stage import Cast, Play, play
from tests.cluster.fleet.workload import Mix, arrivals, make_pod, submit
from tests.unit.extender.pki import issue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.cluster.control.control_plane import ControlPlane

pytestmark = [pytest.mark.cluster, pytest.mark.own_plane]

CLUSTER = parse_cluster("4x dgx-h100, 4x dgx-1-v100, 2x 8x-l4")


@asynccontextmanager
async def playing(service: Service) -> AsyncIterator[Play]:
    """A cluster before the service; both replicas know its nodes."""
    cast = Cast(service.plane, service.replicas[0].process, service.scheduler, {}, None)
    async with service.balancer.serving(), play(cast, CLUSTER, is_known=False) as played:
        for replica in service.replicas:
            async with asyncio.timeout(SOON_S):
                while not await asyncio.to_thread(replica.knows, len(played.nodes)):  # noqa: ASYNC110 - no event
                    await asyncio.sleep(0.05)
        yield played


LEASE_S = 6
"""Shorter than in deploy/, so that a replica takes over soon; it outlasts the pauses of a busy
machine."""
TAKEN_OVER_WITHIN_S = {"stop": 3.0, "kill": 15.0, "pause": 15.0}
"""A Lease that is released waits for nothing; another one for its end."""


@pytest.fixture(scope="module")
def service(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """The service mode of deploy/, with a shorter Lease."""
    made = Service.start(control_plane, tmp_path_factory.mktemp("tls"), lease_s=LEASE_S)
    yield made
    made.stop()


def gpu_pod(name: str, gpus: int, **fields: Any) -> dict[str, Any]:
    """A pod for the scheduler of that mode."""
    manifest = make_pod(name, gpus, **fields)
    manifest["spec"]["schedulerName"] = "coterie-scheduler"
    return manifest


def test_a_follower_hands_binds_to_the_holder(service):
    """The scheduler is led to whichever replica; the holder alone gives GPUs away."""

    async def main() -> None:
        holder = await service.held()
        follower = next(one for one in service.replicas if one is not holder)
        service.balancer.turn = service.replicas.index(follower)
        detail = f"forwarded to {holder.url}"
        n_handed_on = follower.count("answered", verb="bind", outcome="forwarded", detail=detail)
        n_bound = holder.count("answered", verb="bind", outcome="ok")
        n_calls = holder.count("answered", verb="filter")
        async with playing(service) as played:
            pods = [f"p{i}" for i in range(8)]
            for pod in pods:
                await played.create(gpu_pod(pod, 4))
            await played.bound(*pods)
            n_due = (n_handed_on + len(pods), n_bound + len(pods))

            def n_logged() -> tuple[int, int]:
                return (
                    follower.count("answered", verb="bind", outcome="forwarded", detail=detail),
                    holder.count("answered", verb="bind", outcome="ok"),
                )

            async with asyncio.timeout(SOON_S):
                while any(n < due for n, due in zip(n_logged(), n_due, strict=True)):  # noqa: ASYNC110 - a log
                    await asyncio.sleep(0.1)
        assert n_logged() == n_due
        assert follower.count("answered", verb="filter", outcome="ok") >= len(pods)
        assert holder.count("answered", verb="filter") == n_calls

    asyncio.run(main())


def member(group: str, number: int, size: int) -> dict[str, Any]:
    """A pod of a group that takes a node."""
    wishes = {"coterie.gpu/group": group, "coterie.gpu/group-size": str(size)}
    return gpu_pod(f"{group}-{number}", 8, annotations=wishes)


def test_groups_are_placed_by_the_holder_and_by_the_next_one(service):
    """Calls come to a follower; members that wait when the holder dies are woken by its heir."""

    async def main() -> None:
        holder = await service.held()
        follower = next(one for one in service.replicas if one is not holder)
        service.balancer.turn = service.replicas.index(follower)
        detail = f"forwarded to {holder.url}"
        async with playing(service) as played:
            for number in range(2):
                await played.create(member("a", number, 2))
            await played.bound("a-0", "a-1")
            assert follower.count("answered", verb="filter", outcome="forwarded", detail=detail) > 1
            assert follower.count("answered", verb="filter", outcome="ok", pod="default/a-0") == 0
            await played.create(member("b", 0, 2))
            assert "waits for its group" in await played.refused("b-0")
            await asyncio.to_thread(holder.process.kill)
            await service.held(by=follower)
            await played.create(member("b", 1, 2))
            await played.bound("b-0", "b-1")
            await asyncio.to_thread(holder.process.start)

    asyncio.run(main())


def test_a_fail_over_loses_nothing_and_gives_nothing_twice(service):
    """Holders are killed, and ended in order, while pods come and go; the checker reads etcd."""

    async def main() -> None:
        stream = arrivals(Mix(n_pods=200, pods_per_s=10, mean_run_s=4, seed=3))
        for arrival in stream:
            arrival.manifest["spec"]["schedulerName"] = "coterie-scheduler"
        async with playing(service) as played:
            await asyncio.gather(
                submit(played.api, stream),
                disturb(service),
                played.until(lambda: played.checker.n_bound == len(stream), within_s=300),
            )

    asyncio.run(main())


async def disturb(service: Service) -> None:
    """Take the holder away again and again; each time another takes over within a few terms."""
    loop = asyncio.get_running_loop()
    for act in ("kill", "stop", "kill", "pause"):
        holder = await service.held()
        acts = {"kill": holder.process.kill, "pause": holder.process.pause}
        await asyncio.to_thread(acts.get(act, partial(holder.process.stop, SOON_S)))
        try:
            since_s = loop.time()
            if act == "stop":
                held_by = await asyncio.to_thread(service.holder)
                assert held_by is not holder, "it releases the Lease"
            other = next(one for one in service.replicas if one is not holder)
            service.balancer.turn = service.replicas.index(other)
            await service.held(by=other)
            taken_s = loop.time() - since_s
            print(f"{act}: taken over after {taken_s:.1f} s")  # noqa: T201 - a figure
            assert taken_s < TAKEN_OVER_WITHIN_S[act], (act, taken_s)
        finally:
            back = holder.process.resume if act == "pause" else holder.process.start
            await asyncio.to_thread(back)
        assert await asyncio.to_thread(service.holder) is other


def test_certificates_are_rotated_while_pods_are_placed(service):
    """The scheduler's connections live on, and new ones meet the new certificate."""

    async def main() -> None:
        holder = await service.held()
        service.balancer.turn = service.replicas.index(holder)
        async with playing(service) as played:
            await played.create(gpu_pod("before", 2))
            await played.bound("before")
            old = await asyncio.to_thread(ssl.get_server_certificate, (LOOPBACK, holder.port))
            issue(service.folder, service.authority, hosts=(LOOPBACK,))
            async with asyncio.timeout(SOON_S):
                while not holder.count("certificates_changed"):  # noqa: ASYNC110 - a log, no event
                    await asyncio.sleep(0.1)
            new = await asyncio.to_thread(ssl.get_server_certificate, (LOOPBACK, holder.port))
            assert new != old
            await played.create(gpu_pod("after", 2))
            await played.bound("after")

    asyncio.run(main())
