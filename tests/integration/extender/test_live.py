"""The whole live extender in this process, between a scheduler's calls and a small API server."""

from __future__ import annotations

import asyncio
import gc
import io
import os
import signal
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from extender import wiring
from extender.config import ExtenderSettings
from extender.decision_log.replay import replay
from extender.embedded import lay_out, node_manifest, parse_cluster
from kube.errors import SettingsError
from tests.integration.extender.fake_api import FakeApi, fake_api
from tests.integration.extender.test_serving import WatchedLog
from tests.unit.extender.pods import GPU, container
from topology.annotations import DeviceHold, DevicesReport, decode_plan, encode_devices
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from extender.embedded.spec import EmbeddedNode

NODES = lay_out(parse_cluster("2x dgx-1-v100, 1x 8x-l4"))
SOON_S = 60.0


@pytest.fixture(autouse=True)
def _collector_restored() -> Iterator[None]:
    """Serving tunes the garbage collector of the whole process."""
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)


class Live:
    """A running extender: its API server, its log, and calls to it as the scheduler makes them."""

    def __init__(self, api: FakeApi, log: WatchedLog, client: httpx.AsyncClient) -> None:
        self.api = api
        self.log = log
        self.client = client

    def create(
        self, name: str, n_gpus: int, *, scheduler: str = "coterie-scheduler", **annotations: str
    ) -> dict[str, Any]:
        """Create a pending pod; annotations by their short names."""
        keys = {
            f"{names.PREFIX}{key.replace('_', '-')}": value for key, value in annotations.items()
        }
        meta = {"namespace": "default", "name": name, "annotations": keys}
        spec = {"containers": [container("main", n_gpus)], "schedulerName": scheduler}
        content = {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}}
        return self.api.put("pods", content)

    async def post(self, verb: str, content: Any) -> Any:
        """One verb."""
        return (await self.client.post(f"/{verb}", json=content)).json()

    async def get(self, path: str) -> Any:
        """What a route responds."""
        return (await self.client.get(path)).json()

    async def filter(self, name: str, nodes: list[str] | None = None) -> Any:
        """Ask for the nodes of a pod."""
        pod = self.api.objects["pods"][name]
        names = nodes or [node.name for node in NODES]
        return await self.post("filter", {"Pod": pod, "NodeNames": names})

    async def bind(self, name: str, node: str) -> str:
        """Bind a pod; the error, empty where there is none."""
        uid = self.api.objects["pods"].get(name, {"metadata": {"uid": "gone"}})["metadata"]["uid"]
        body = {"PodNamespace": "default", "PodName": name, "PodUID": uid, "Node": node}
        answer: str = (await self.post("bind", body))["Error"]
        return answer

    async def place(self, name: str, n_gpus: int, node: str, **annotations: str) -> None:
        """Create, filter and bind a pod."""
        self.create(name, n_gpus, **annotations)
        assert node in (await self.filter(name))["NodeNames"]
        assert await self.bind(name, node) == ""

    def plan(self, name: str) -> set[str]:
        """The devices in a pod's plan."""
        return set(decode_plan(self.api.annotations(name)[names.PLAN]).ids)

    async def known(self, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until the state's counts are so."""
        async with asyncio.timeout(SOON_S):
            while True:
                state: dict[str, Any] = await self.get("/state")
                if is_so(state):
                    return state


def run(
    folder: Path,
    act: Callable[[Live], Awaitable[None]],
    *,
    file: io.StringIO | None = None,
    prepare: Callable[[FakeApi], None] | None = None,
    acts_on: str = "ready",
    **settings: Any,
) -> WatchedLog:
    """Run an extender over the nodes, and act when it logs that; then end it by SIGTERM."""
    log = WatchedLog()

    async def go() -> None:
        async with fake_api(folder) as (api, kubeconfig):
            for node in NODES:
                api.put("nodes", node_manifest(node))
            if prepare is not None:
                prepare(api)
            made = ExtenderSettings(kubeconfig=kubeconfig, listen_port=0, **settings)
            sockets = wiring.open_sockets(made)
            where = sockets.health or sockets.verbs
            url = f"http://127.0.0.1:{where.getsockname()[1]}"
            running = asyncio.create_task(wiring.serve(made, sockets, file, log))
            try:
                async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as client:
                    await asyncio.wait(
                        [running, asyncio.create_task(until_logged(log, acts_on))],
                        return_when=asyncio.FIRST_COMPLETED,
                    )
                    await act(Live(api, log, client))
            finally:
                if not running.done():
                    os.kill(os.getpid(), signal.SIGTERM)
                await running
                sockets.close()

    asyncio.run(go())
    return log


async def until_logged(log: WatchedLog, event: str) -> None:
    """Wait for the line of an event."""
    while event not in log.events:
        await log.until(len(log.lines) + 1)


def test_a_pod_goes_from_filter_to_its_plan_and_its_end(tmp_path):
    """One write binds it with its plan; when it ends its GPUs are free; and all of it replays."""

    async def act(live: Live) -> None:
        live.create("p", 4, affinity="nvlink")
        filtered = await live.filter("p")
        body = {"Pod": live.api.objects["pods"]["p"], "NodeNames": filtered["NodeNames"]}
        scores = {one["Host"]: one["Score"] for one in await live.post("prioritize", body)}
        best = max(scores, key=lambda host: scores[host])
        assert await live.bind("p", best) == ""
        assert len(live.plan("p")) == 4
        assert live.api.objects["pods"]["p"]["spec"]["nodeName"] == best
        assert await live.bind("p", best) == ""
        assert "bound to node" in await live.bind("p", "8x-l4-0")
        assert (await live.known(lambda s: s["devices"]["bound"] == 4))["n_pods"] == 1
        live.api.change("pods", "p", lambda pod: pod["status"].update(phase="Succeeded"))
        await live.known(lambda s: s["devices"]["free"] == 24)

    file = io.StringIO()
    log = run(tmp_path, act, file=file)
    assert replay(file.getvalue().splitlines(keepends=True)).difference is None
    bound = [one for one in log.lines if one.get("verb") == "bind"]
    assert bound[0]["outcome"] == "ok"
    assert bound[0]["own_ms"] <= bound[0]["ms"]


def test_routes_of_a_live_extender(tmp_path):
    """State, nodes, readiness, metrics, and an explanation of a pod by its name."""

    async def act(live: Live) -> None:
        await live.place("p", 2, "8x-l4-0")
        nodes = (await live.get("/state/nodes"))["nodes"]
        assert set(nodes) == {node.name for node in NODES}
        assert (await live.get("/explain/default/p"))["bound"]["node"] == "8x-l4-0"
        live.create("waiting", 2)
        explained = await live.get("/explain/default/waiting")
        assert {node["node"] for node in explained["nodes"]} == set(nodes)
        for path, status in (
            ("/explain/default/q", 404),
            ("/openapi.json", 200),
            ("/livez", 200),
            ("/readyz", 200),
            ("/healthz", 200),
        ):
            assert (await live.client.get(path)).status_code == status
        live.api.faults["GET /api/v1/namespaces/default/pods/p"] = [500]
        unread = await live.client.get("/explain/default/p")
        assert unread.status_code == 502
        assert unread.json()["detail"].startswith("pod default/p cannot be read: ")
        text = (await live.client.get("/metrics")).text
        for line in (
            'coterie_extender_watch_lists_total{source="nodes"} 1.0',
            'coterie_extender_watch_last_heard_timestamp_seconds{source="assigned_pods"}',
            "coterie_extender_bind_own_duration_seconds_count 1.0",
            'coterie_extender_placed_bandwidth_bytes_per_second_count{machine="8x',
            "process_resident_memory_bytes",
        ):
            assert line in text

    run(tmp_path, act)


def test_preempt_is_answered(tmp_path):
    """What it decides is tested with the decision; here it has its route, and reads."""

    async def act(live: Live) -> None:
        pod = live.create("p", 4)
        answer = await live.post(
            "preempt", {"Pod": pod, "NodeNameToMetaVictims": {"8x-l4-0": {"Pods": []}}}
        )
        assert answer == {"NodeNameToMetaVictims": {}}

    run(tmp_path, act)


def test_a_parked_pod_is_woken_when_it_fits(tmp_path):
    """Through an annotation, where the scheduler has not come back by itself."""

    async def act(live: Live) -> None:
        for i, node in enumerate(NODES):
            await live.place(f"full-{i}", 8, node.name)
        live.create("p", 8)
        assert (await live.filter("p"))["NodeNames"] == []
        live.api.delete("pods", "full-0")
        await live.api.until(lambda: names.RETRY in live.api.annotations("p"))
        assert (await live.filter("p"))["NodeNames"] == [NODES[0].name]

    log = run(tmp_path, act, wake_after_s=0.05)
    assert "requeued" in log.events


def test_users_get_events(tmp_path):
    """Of their own mistakes, once; of placements where that is wanted."""

    async def act(live: Live) -> None:
        live.create("odd", 2, affinity="nvlnk")
        for _ in range(3):
            await live.filter("odd")
        await live.place("p", 2, NODES[0].name, policy="required")
        await live.api.until(lambda: len(live.api.events) == 3)
        found = [(event["involvedObject"]["name"], event["reason"]) for event in live.api.events]
        assert found == [
            ("odd", "InvalidGpuRequest"),
            ("p", "UnsupportedGpuRequest"),
            ("p", "GpusPlaced"),
        ]
        assert "nvlnk" in live.api.events[0]["message"]
        assert "GB/s" in live.api.events[2]["message"]

    run(tmp_path, act, events="all")


def give(live: Live, node: EmbeddedNode, pod: str, ids: tuple[str, ...]) -> None:
    """Have the node report that the pod has these devices."""
    uid = live.api.objects["pods"][pod]["metadata"]["uid"]
    hold = DeviceHold(uid, "default", pod, "main", GPU, ids)
    text = encode_devices(DevicesReport(generation=2, holds=(hold,)))
    live.api.change(
        "nodes", node.name, lambda one: one["metadata"]["annotations"].update({names.DEVICES: text})
    )


def test_an_allocation_that_differs_from_its_plan_is_reported_on_the_pod(tmp_path):
    """By annotation and Event; the state follows what is."""

    async def act(live: Live) -> None:
        node = NODES[0]
        await live.place("p", 2, node.name)
        other = tuple(one for one in node.ids if one not in live.plan("p"))[:2]
        give(live, node, "p", other)
        await live.api.until(lambda: names.ALLOCATED in live.api.annotations("p"))
        await live.api.until(lambda: live.api.events)
        assert live.api.events[0]["reason"] == "GpusAllocatedOtherwise"
        state = await live.get("/state/nodes")
        (held,) = state["nodes"][node.name]["held"]
        assert (held["pod"], set(held["ids"])) == ("default/p", set(other))

    log = run(tmp_path, act)
    assert "discrepancy" in log.events


def test_a_node_that_cannot_be_used_gets_an_event(tmp_path):
    """Pods go on being counted there."""

    async def act(live: Live) -> None:
        live.api.change(
            "nodes",
            NODES[0].name,
            lambda one: one["metadata"]["annotations"].update({names.TOPOLOGY: "{"}),
        )
        await live.api.until(lambda: live.api.events)
        (event,) = live.api.events
        assert (event["involvedObject"]["kind"], event["reason"]) == ("Node", "GpuNodeProblem")
        assert event["metadata"]["namespace"] == "default"

    run(tmp_path, act)


def test_a_pod_without_a_plan_is_read_in_full(tmp_path):
    """Another client bound it: its GPUs are taken all the same."""

    def prepare(api: FakeApi) -> None:
        spec = {"nodeName": NODES[0].name, "containers": [container("main", 3)]}
        api.put("pods", {"metadata": {"namespace": "default", "name": "foreign"}, "spec": spec})

    async def act(live: Live) -> None:
        live.create("p", 6)
        assert NODES[0].name not in (await live.filter("p"))["NodeNames"]

    run(tmp_path, act, prepare=prepare)


def test_a_new_kind_of_machine_joins(tmp_path):
    """Its tables are built while the extender answers."""

    async def act(live: Live) -> None:
        (new,) = lay_out(parse_cluster("1x 4x-a100-sxm"))
        live.api.put("nodes", node_manifest(new))
        await live.known(lambda state: state["n_nodes"] == 4)
        live.create("p", 4)
        assert (await live.filter("p", [new.name]))["NodeNames"] == [new.name]

    run(tmp_path, act)


def test_a_fault_of_the_api_server_is_logged_and_survived(tmp_path):
    """A bind that the server refuses for a moment; a start on which it does not answer at once."""

    def prepare(api: FakeApi) -> None:
        api.faults["GET /api/v1/nodes"] = [500]

    async def act(live: Live) -> None:
        live.create("p", 2)
        await live.filter("p")
        live.api.faults["/binding"] = [403]
        assert "refused" in await live.bind("p", NODES[0].name)
        await live.api.until(lambda: live.api.events)
        assert live.api.events[0]["reason"] == "GpuBindRefused"
        assert await live.bind("p", NODES[0].name) == ""

    log = run(tmp_path, act, prepare=prepare)
    (fault,) = [line for line in log.lines if line["event"] == "watch_error"]
    assert (fault["source"], fault["will_list"]) == ("nodes", True)


@pytest.mark.parametrize(
    ("status", "health"),
    [
        pytest.param(500, 200, id="away for all clients"),
        pytest.param(403, 503, id="refuses this extender"),
    ],
)
def test_another_extender_should_serve_where_the_api_server_is_not_away(tmp_path, status, health):
    """kube-scheduler is restarted by it: an outage must restart none, a broken leader must end."""

    def prepare(api: FakeApi) -> None:
        api.faults["GET /api/v1/nodes"] = [status] * 10_000

    async def act(live: Live) -> None:
        assert (await live.client.get("/readyz")).status_code == 503
        answer = await live.client.get("/healthz")
        assert answer.status_code == health
        assert health == 200 or "not listed yet: nodes" in answer.text
        live.api.faults.clear()
        await until_logged(live.log, "ready")
        for path in ("/readyz", "/healthz"):
            assert (await live.client.get(path)).status_code == 200

    run(tmp_path, act, prepare=prepare, acts_on="watch_error")


def test_without_an_api_server_nothing_starts(tmp_path, check_message):
    """A clear word instead of a guess."""

    async def go() -> None:
        settings = ExtenderSettings(listen_port=0)
        sockets = wiring.open_sockets(settings)
        try:
            await wiring.serve(settings, sockets, None, WatchedLog())
        finally:
            sockets.close()

    del tmp_path
    with pytest.raises(SettingsError) as caught:
        asyncio.run(go())
    check_message(caught.value)
