"""Two pairs of kube-scheduler and extender: who leads, and what a fail-over leaves behind.

The kubelet's part, liveness probes and restarts, is played by the manifest's own probe.
"""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from extender.embedded import lay_out, node_manifest, parse_cluster
from tests.cluster.control.control_plane import ControlPlane
from tests.cluster.control.manifests import (
    NAMESPACE,
    Mode,
    await_so,
    extender_pod,
    extender_settings,
    install,
    scheduler_config,
)
from tests.cluster.control.processes import free_port
from tests.cluster.fleet.stage import Cast, play
from tests.cluster.fleet.workload import PODS, SCHEDULER, Mix, arrivals, make_pod, pod_path, submit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.control.extender_process import ExtenderProcess
    from tests.cluster.control.scheduler import Scheduler

pytestmark = pytest.mark.cluster

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/coterie-scheduler"
STANDBY_PLACES_WITHIN_S = 300.0
"""A hang: the Lease, the probes and a bind take some tens of seconds."""
CLUSTER = parse_cluster("4x dgx-h100, 4x dgx-1-v100, 2x 8x-l4")
RESTART_S = 10.0
"""The kubelet's delay before it starts a container for the second time (kubelet.go)."""


def liveness() -> dict[str, Any]:
    """The probe of the scheduler's container, as shipped."""
    (scheduler, _) = extender_pod(Mode.SECOND_SCHEDULER)["containers"]
    probe: dict[str, Any] = scheduler["livenessProbe"]
    return probe


@dataclass
class Pair:
    """One pod: its programs, and who restarts the scheduler as the kubelet would."""

    extender: ExtenderProcess
    scheduler: Scheduler
    n_restarts: int = 0
    is_over: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._probe)

    def start(self) -> None:
        """Begin to probe, as after the initial delay."""
        self._thread.start()

    def stop(self) -> None:
        """End the probes."""
        self.is_over.set()
        self._thread.join()

    def _probe(self) -> None:
        probe, n_failures = liveness(), 0
        url = self.extender.health_url + probe["httpGet"]["path"]
        while not self.is_over.wait(probe["periodSeconds"]):
            try:
                answer = httpx.get(url, timeout=probe["timeoutSeconds"], trust_env=False)
                is_alive = answer.status_code == httpx.codes.OK
            except httpx.HTTPError:
                is_alive = False
            n_failures = 0 if is_alive else n_failures + 1
            if n_failures == probe["failureThreshold"]:
                n_failures = 0
                self.n_restarts += 1
                self.scheduler.stop()
                if not self.is_over.wait(RESTART_S):
                    self.scheduler.start()


@pytest.fixture
def plane(binaries, tmp_path) -> Iterator[ControlPlane]:
    """A control plane with the second scheduler's manifests and one node."""
    with ControlPlane(binaries, tmp_path / "plane") as running:
        install(running, Mode.SECOND_SCHEDULER)
        (node,) = lay_out(parse_cluster("1x dgx-h100"))
        running.client.post("/api/v1/nodes", json=node_manifest(node)).raise_for_status()
        yield running


def start_pair(plane: ControlPlane, number: int) -> Pair:
    """One of the Deployment's pods."""
    port, health_port = free_port(), free_port()
    shipped = extender_settings(Mode.SECOND_SCHEDULER)
    shipped |= {"listen_port": str(port), "health_port": str(health_port), "read_port": "0"}
    extender = plane.start_extender(
        plane.service_account(NAMESPACE, "coterie-extender"),
        name=f"extender-{number}",
        port=port,
        health_url=f"http://127.0.0.1:{health_port}",
        environment={f"COTERIE_EXTENDER_{name.upper()}": one for name, one in shipped.items()},
    )
    account = plane.service_account(NAMESPACE, "coterie-scheduler")
    config = scheduler_config(Mode.SECOND_SCHEDULER, extender.url, kubeconfig=account)
    own = ("--authentication-kubeconfig", str(account), "--authorization-kubeconfig", str(account))
    scheduler = plane.start_scheduler(
        config, name=f"scheduler-{number}", flags=("--leader-elect=true", *own)
    )
    return Pair(extender, scheduler)


def start_pairs(plane: ControlPlane) -> list[Pair]:
    """Two of them, of which the first leads."""
    leader = start_pair(plane, 0)
    await_so(lambda: holder(plane) != "", "a leader")
    return [leader, start_pair(plane, 1)]


def holder(plane: ControlPlane) -> str:
    """Who leads: the identity in the lease."""
    answer = plane.client.get(LEASE)
    return str(answer.json()["spec"]["holderIdentity"]) if answer.is_success else ""


def is_bound(plane: ControlPlane, name: str) -> bool:
    """Whether a pod has a node."""
    return "nodeName" in plane.client.get(pod_path(name)).json()["spec"]


def crash(pair: Pair, _plane: ControlPlane) -> None:
    """The extender is gone and does not come back."""
    pair.extender.kill()


def lock_out(pair: Pair, plane: ControlPlane) -> None:
    """The extender starts again and may read nothing: it is never synced."""
    pair.extender.stop()
    command = list(pair.extender.command)
    command[command.index("--kubeconfig") + 1] = str(plane.kubeconfig("no-rights"))
    pair.extender.command = command
    pair.extender.is_ready = lambda: True
    pair.extender.start()


@pytest.mark.parametrize("break_extender", [crash, lock_out], ids=["crashed", "never synced"])
def test_the_standby_leads_where_the_leaders_extender_is_broken(plane, break_extender):
    """GPU pods waited for as long as the leader lived; the healthy pair is not restarted."""
    leader, standby = start_pairs(plane)
    first = holder(plane)
    plane.client.post(PODS, json=make_pod("before", 2)).raise_for_status()
    await_so(lambda: is_bound(plane, "before"), "bound by the leader")
    pairs = (leader, standby)
    for pair in pairs:
        pair.start()
    try:
        break_extender(leader, plane)
        began_s = time.monotonic()
        plane.client.post(PODS, json=make_pod("after", 2)).raise_for_status()
        while not is_bound(plane, "after"):
            assert time.monotonic() - began_s < STANDBY_PLACES_WITHIN_S, holder(plane)
            time.sleep(0.2)
        print(f"bound {time.monotonic() - began_s:.1f} s after the extender broke")  # noqa: T201
        assert holder(plane) != first
        assert leader.n_restarts >= 1
        assert standby.n_restarts == 0
    finally:
        for pair in pairs:
            pair.stop()


def test_an_outage_of_the_api_server_is_no_fault_of_an_extender(plane):
    """It starts while the API server is away: not ready, and no container is restarted for it."""
    pair = start_pair(plane, 0)
    pair.extender.stop()
    plane.kill_api_server()
    pair.extender.is_ready = lambda: pair.extender.events("watch_error") != []
    pair.extender.start()
    assert pair.extender.get("/readyz").status_code == httpx.codes.SERVICE_UNAVAILABLE
    assert pair.extender.get("/healthz").status_code == httpx.codes.OK
    plane.start_api_server()
    await_so(lambda: pair.extender.get("/readyz").status_code == httpx.codes.OK, "ready")


def test_a_fail_over_loses_nothing_and_gives_nothing_twice(plane):
    """Leaders are killed, and ended in order, while pods come and go; the checker reads etcd."""
    pairs = start_pairs(plane)
    stream = arrivals(Mix(n_pods=200, pods_per_s=4, mean_run_s=4, seed=3))
    for arrival in stream:  # no other scheduler runs
        arrival.manifest["spec"]["schedulerName"] = SCHEDULER
    cast = Cast(plane, pairs[0].extender, pairs[0].scheduler, {}, None)

    async def main() -> None:
        async with play(cast, CLUSTER, is_known=False) as played:
            await asyncio.gather(
                submit(played.api, stream),
                asyncio.to_thread(fail_over, plane, pairs),
                played.until(lambda: played.checker.n_bound == len(stream), within_s=300),
            )

    asyncio.run(main())


def test_members_that_wait_when_the_leader_dies_are_placed_by_the_next(plane):
    """Its extender was never called for them: it wakes them when the last one is there."""
    pairs = start_pairs(plane)
    wishes = {"coterie.gpu/group": "g", "coterie.gpu/group-size": "2"}
    cast = Cast(plane, pairs[0].extender, pairs[0].scheduler, {}, None)

    async def main() -> None:
        async with play(cast, CLUSTER, is_known=False) as played:
            await played.create(make_pod("g-0", 8, annotations=wishes))
            assert "waits for its group" in await played.refused("g-0")
            await asyncio.to_thread(take_away, plane, pairs[0], "kill")
            await played.create(make_pod("g-1", 8, annotations=wishes))
            await played.bound("g-0", "g-1")

    asyncio.run(main())


def fail_over(plane: ControlPlane, pairs: list[Pair]) -> None:
    """Take the leader away again and again, and bring it back when the other one leads."""
    for act in ("kill", "stop", "kill"):
        take_away(plane, pairs[0], act)
        pairs[0].extender.start()
        pairs[0].scheduler.start()
        pairs.reverse()


def take_away(plane: ControlPlane, leader: Pair, act: str) -> None:
    """End the leader, scheduler and extender, and wait for another."""
    before = holder(plane)
    for program in (leader.scheduler, leader.extender):
        getattr(program, act)()
    await_so(lambda: holder(plane) not in {"", before}, "another leader")
