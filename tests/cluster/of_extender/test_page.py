"""The page before a real API server and kube-scheduler: each view shows what these say."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from playwright.sync_api import expect

from extender.embedded import parse_cluster
from tests.cluster.fleet.nodes import node_path
from tests.cluster.fleet.stage import Cast, play, start_cast
from tests.cluster.fleet.workload import PODS, make_pod
from tests.page.chromium import chromium, serious_faults, settled
from topology.annotations import decode_plan, pod_keys
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from tests.cluster.control.control_plane import ControlPlane

pytestmark = pytest.mark.cluster

NVLINK = {pod_keys.AFFINITY: "nvlink", pod_keys.POLICY: "required"}
SOON_S = 60.0


@pytest.fixture
def cast(control_plane: ControlPlane) -> Iterator[Cast]:
    """Extender with a read port, and scheduler."""
    made = start_cast(control_plane, "--read-port", "0")
    yield made
    made.stop()


def test_each_view_shows_the_cluster_as_the_api_server_has_it(cast):
    """Placed pods with their plans, one that waits, and where another would go."""
    (listening,) = cast.extender.events("listening")
    base = f"http://127.0.0.1:{listening['read_port']}"

    async def main() -> None:
        async with play(cast, parse_cluster("2x dgx-1-v100, 1x 8x-l4")) as played:
            await played.create(make_pod("train", 4, annotations=NVLINK))
            await played.create(make_pod("pair", 2, annotations=NVLINK))
            await played.create(make_pod("whole", 8, annotations=NVLINK))
            await played.bound("train", "pair", "whole")
            await played.create(make_pod("waits", 8, annotations=NVLINK))
            await played.refused("waits")
            await held(base, 3)
            pods = (await played.api.get(PODS))["items"]
            await asyncio.to_thread(look, base, pods)
            await played.delete("waits", "whole", "pair", "train")

    asyncio.run(main())


def test_a_cordoned_node_is_no_room(cast):
    """Its free GPUs stand apart, no waiting pod is told that it fits there, until it is open."""
    (listening,) = cast.extender.events("listening")
    base = f"http://127.0.0.1:{listening['read_port']}"

    async def main() -> None:
        async with play(cast, parse_cluster("2x dgx-1-v100")) as played:
            cordoned, other = (node.name for node in played.nodes)
            await played.api.patch(node_path(cordoned), {"spec": {"unschedulable": True}})
            # The scheduler may not have seen the cordon yet.
            selects = {"nodeSelector": {"kubernetes.io/hostname": other}}
            await played.create(make_pod("whole", 8, spec=selects))
            await played.bound("whole")
            await played.create(make_pod("waits", 8))
            await played.refused("waits")
            await asyncio.to_thread(see_cordoned, base, cordoned)
            await played.api.patch(node_path(cordoned), {"spec": {"unschedulable": False}})
            await played.bound("waits")

    asyncio.run(main())


def see_cordoned(base: str, node: str) -> None:
    """The cluster, the node, capacity and the pod that waits."""
    with chromium() as browser:
        page = opened(browser, base, "", "1 pod waits")
        expect(page.locator("h1")).to_have_text(
            "16 GPUs, 0 free, 8 more free on nodes that take no new pod, 1 pod waits"
        )
        expect(page.locator(f'[data-node="{node}"] > .free')).to_have_text("no new pod")
        assert serious_faults(page) == []
        opened(browser, base, f"node/{node}", "New pods do not come here: the node is cordoned")
        opened(browser, base, "pod/default/waits", "0 of 2 nodes fit")
        row = opened(browser, base, "capacity", "Unavailable").get_by_role("row").nth(1)
        for i, count in enumerate(["2", "16", "0", "0", "8", "0", "0", "0"], start=1):
            expect(row.locator("td, th").nth(i)).to_have_text(count)


async def held(base: str, n_pods: int) -> None:
    """Wait until the extender has read from pod.status what so many pods were given."""
    async with (
        asyncio.timeout(SOON_S),
        httpx.AsyncClient(base_url=base, trust_env=False, timeout=SOON_S) as client,
    ):
        while True:
            items = (await client.get("/api/v1/pods")).json()["items"]
            if [pod["as_planned"] for pod in items] == [True] * n_pods:
                return
            await asyncio.sleep(0.1)


def look(base: str, pods: list[dict[str, Any]]) -> None:
    """Compare each view with the pods of the API server."""
    with chromium() as browser:
        placed = {one["metadata"]["name"]: one for one in pods if one["spec"].get("nodeName")}
        assert sorted(placed) == ["pair", "train", "whole"]
        see_cluster(browser, base, placed)
        update_node(browser, base, placed)
        see_pod(browser, base, placed["train"])
        see_waiting(browser, base, next(one for one in pods if one not in placed.values()))
        page = opened(browser, base, "what-if", "would be placed")
        assert serious_faults(page) == []
        opened(browser, base, "capacity", "a restart of the extender loses it")


def opened(browser: Browser, base: str, view: str, text: str) -> Page:
    """A view that shows this text."""
    page = browser.new_page()
    page.goto(f"{base}/ui/#/{view}")
    settled(page, text)
    expect(page.locator("#live")).to_have_text("Live")
    return page


def see_cluster(browser: Browser, base: str, placed: dict[str, Any]) -> None:
    """Sums and tiles: each pod takes what it requests of its node."""
    page = opened(browser, base, "", "1 pod waits")
    expect(page.locator("h1")).to_have_text(re.compile("^24 GPUs, 10 free, "))
    expect(page.get_by_text("default/waits waits")).to_have_count(1)
    sizes = {"train": 4, "pair": 2, "whole": 8}
    for node in ("dgx-1-v100-0", "dgx-1-v100-1", "8x-l4-0"):
        taken = sum(sizes[name] for name, pod in placed.items() if pod["spec"]["nodeName"] == node)
        says = "full" if taken == 8 else f"{8 - taken} free"
        expect(page.locator(f'[data-node="{node}"] > .free')).to_have_text(says)


def update_node(browser: Browser, base: str, placed: dict[str, Any]) -> None:
    """The pods of a node, each device with the id of the plan."""
    train = placed["train"]
    page = opened(browser, base, f"node/{train['spec']['nodeName']}", "default/train")
    for one in plan_ids(train):
        row = page.get_by_role("row").filter(has_text=one)
        expect(row).to_contain_text("default/train")


def see_pod(browser: Browser, base: str, pod: dict[str, Any]) -> None:
    """Its node, and that it has what was planned: no node reports another set."""
    page = opened(browser, base, "pod/default/train", "its node reports only what differs.")
    expect(page.get_by_text("Planned {0, 1, 2, 3}, has {0, 1, 2, 3}.")).to_have_count(1)
    expect(page.locator(".detail").first).to_contain_text(pod["spec"]["nodeName"])
    expect(page.get_by_role("region", name="Chosen").locator(".gpu.in")).to_have_count(4)
    expect(page.get_by_role("heading", level=2).nth(1)).to_have_text(
        re.compile("Runner-up on this node|Better here now")
    )
    assert serious_faults(page) == []


def see_waiting(browser: Browser, base: str, pod: dict[str, Any]) -> None:
    """The reason is the one that the scheduler wrote into the pod's condition."""
    (condition,) = (one for one in pod["status"]["conditions"] if one["type"] == "PodScheduled")
    page = opened(browser, base, "pod/default/waits", "0 of 3 nodes fit")
    expect(page.locator(".notice").first).not_to_be_empty()
    reason = page.locator(".notice").first.inner_text().removesuffix(".")
    assert reason in condition["message"]
    helped = page.get_by_role("region", name="Would fit first here")
    expect(helped.locator(".gpu.in")).to_have_count(8)
    expect(helped).to_contain_text(re.compile(r"when default/\S+ .*\(\d GPUs\) ends?"))
    pending = opened(browser, base, "pending", "default/waits")
    expect(pending.get_by_role("row").filter(has_text="default/waits")).to_contain_text(reason)


def plan_ids(pod: dict[str, Any]) -> tuple[str, ...]:
    """The devices that Coterie wrote into the pod."""
    plan = decode_plan(pod["metadata"]["annotations"][names.PLAN])
    assert plan.node == pod["spec"]["nodeName"]
    return plan.ids
