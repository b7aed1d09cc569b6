"""Groups and the picture of the fabric in a real Chromium."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from playwright.sync_api import expect

from benchmarks.demo.process import run_extender
from tests.integration.extender.embedded_client import bind, create, delete, filtered, place
from tests.page.chromium import most_tiles, serious_faults, settled
from tests.page.conftest import SCRIPT_NAME
from tests.unit.extender.pods import pod

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from httpx import Client
    from playwright.sync_api import Locator, Page, Route

pytestmark = pytest.mark.page

LEAF, SPINE = "network.topology.nvidia.com/leaf", "network.topology.nvidia.com/spine"
PLANNED_WITHIN_S = 60.0
VIEWS = {
    "groups": ("groups", "3 of 4 members are here"),
    "group": ("group/default/train", "2 members bound"),
    "group-waits": ("group/default/sweep", "members are missing"),
    "fabric": ("fabric", "leaf S1"),
    "pod": ("pod/default/pod-t0", "Member of group default/train"),
}


def leaves(n_spines: int, n_leaves: int, n_nodes: int) -> list[dict[str, Any]]:
    """Leaf switches below spines, the same names below each."""
    return [
        {
            "name": f"p{spine}s{leaf}",
            "machine": "dgx-h100",
            "count": n_nodes,
            "zone": "zone-a",
            "labels": {SPINE: f"P{spine}", LEAF: f"S{leaf}"},
        }
        for spine in range(n_spines)
        for leaf in range(n_leaves)
    ]


def write(path: Path, groups: list[dict[str, Any]]) -> str:
    """The description of such a cluster."""
    path.write_text(yaml.safe_dump({"groups": groups}), encoding="utf-8")
    return str(path)


def member(uid: str, group: str, size: int) -> dict[str, Any]:
    """A pod of a group, of eight GPUs."""
    return pod(8, uid=uid, group=group, group_size=str(size))


@pytest.fixture(scope="session")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Two spines of three leaves, and a node under none; a group is bound, one waits."""
    folder = tmp_path_factory.mktemp("fabric")
    nodes = [*leaves(2, 3, 3), {"name": "alone", "machine": "8x-l4", "count": 1, "zone": "zone-a"}]
    with run_extender(
        write(folder / "c.yaml", nodes), port=0, log=folder / "extender.log"
    ) as client:
        names = [node["name"] for node in client.get("/api/v1/nodes").json()["items"]]
        place_group(client, [member(f"t{i}", "train", 2) for i in range(2)], names)
        for i in range(3):
            waits = create(client, member(f"w{i}", "sweep", 4))
            assert not filtered(client, waits, names)
        place(client, pod(2, uid="single"), ["p1s2-0"])
        yield client


def place_group(client: Client, pods: list[dict[str, Any]], nodes: list[str]) -> None:
    """Create members, and bind them together once their group is planned."""
    created = [create(client, one) for one in pods]
    until_s = time.monotonic() + PLANNED_WITHIN_S
    while len(named := [on for one in created for on in filtered(client, one, nodes)]) < len(pods):
        assert time.monotonic() < until_s
        time.sleep(0.05)
    with ThreadPoolExecutor(len(pods)) as binds:
        list(binds.map(partial(bind, client), created, named))


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_shows_its_content_and_is_accessible(open_page, keep_picture, fabric, view, theme):
    """Its content, and nothing that axe-core judges as serious or critical."""
    address, shown = VIEWS[view]
    page = open_page(address, theme=theme, at=fabric)
    settled(page, shown)
    keep_picture(page, f"of-groups-{view}-{theme}")
    assert serious_faults(page) == []


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_fits_a_telephone_and_prints(open_page, keep_picture, fabric, view):
    """390 pixels without scrolling sideways; on paper without controls."""
    address, shown = VIEWS[view]
    page = open_page(address, width=390, at=fabric)
    settled(page, shown)
    keep_picture(page, f"of-groups-{view}-390")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.emulate_media(media="print")
    for control in (".bar", ".filters"):
        for one in page.locator(control).all():
            expect(one).to_be_hidden()
    assert page.pdf().startswith(b"%PDF")


def test_a_group_that_waits_is_one_line_of_the_cluster(open_page, fabric):
    """Its members filled the box, each with the same sentence."""
    page = open_page("", at=fabric)
    lines = page.locator(".waiting li")
    expect(lines.filter(has_text="default/sweep")).to_have_count(1)
    expect(lines.filter(has_text="default/sweep")).to_contain_text("default/sweep, 3 pods, wait")
    for text in ("sweep", "pod-w1"):
        found = open_page(f"?find={text}", at=fabric)
        expect(found.locator(".waiting li")).to_contain_text("default/sweep, 3 pods, wait")


def test_groups_that_wait_come_first_with_counts_and_reason(open_page, fabric):
    """Then those that are placed, with domain, nodes and what the API predicts."""
    page = open_page("groups", at=fabric)
    settled(page, "2 groups, 1 waits")
    rows = page.get_by_role("region", name="Groups").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text("default/sweep")
    expect(rows.nth(0)).to_contain_text("3 of 4 members are here")
    expect(rows.nth(0)).to_contain_text("members are missing")
    group = fabric.get("/api/v1/groups/default/train").json()
    expect(rows.nth(1)).to_contain_text(f"leaf {group['domain']}")
    expect(rows.nth(1)).to_contain_text(f"{group['gbytes_per_s']:.0f} GB/s, at least ")
    rows.nth(1).get_by_role("link", name="default/train").click()
    settled(page, "2 members bound")
    region = page.get_by_role("region", name="Nodes of the group")
    on = {one["node"] for one in group["members"]}
    expect(region.locator(".tile")).to_have_count(len(on))
    assert {one.get_attribute("data-node") for one in region.locator(".tile").all()} == on
    expect(region.locator('.cell[data-group="default/train"]')).to_have_count(16)
    expect(page.get_by_role("region", name="Members").locator("tbody tr")).to_have_count(2)


def show_unlabelled(page: Page, name: str) -> None:
    """Show the fabric as if nodes of that name had no labels; embedded ones have their zone's."""

    def answer(route: Route) -> None:
        body = route.fetch().json()
        for one in body["items"]:
            if one["name"].startswith(name):
                one["domains"] = []
        route.fulfill(json=body)

    page.route("**/api/v1/nodes?*", answer)
    page.evaluate("location.hash = '#/fabric'")


def test_the_fabric_has_a_cell_for_each_gpu_below_its_domains(open_page, fabric):
    """Leaves of the same name below two spines are two; a node without labels is by itself."""
    page = open_page("pending", at=fabric)
    show_unlabelled(page, "alone-0")
    settled(page, "spine P1")
    expect(page.locator(".tile")).to_have_count(19)
    headings = page.locator(".group.domain").all_inner_texts()
    assert sum("leaf S1" in one for one in headings) == 2
    assert any(one.startswith("in no known domain") for one in headings)
    expect(page.locator(".tile .cell")).to_have_count(19 * 8)
    expect(page.locator(".tile .cell.free")).to_have_count(19 * 8 - 18)
    expect(page.locator(".tile .cell.single")).to_have_count(2)
    expect(page.get_by_text("1 node of 19 has no such labels")).to_have_count(1)
    colours = page.locator('.cell[data-group="default/train"]').evaluate_all(
        "all => [...new Set(all.map(one => getComputedStyle(one).getPropertyValue('--fill')))]"
    )
    assert len(colours) == 1


def test_pointing_and_moving_show_whose_gpus_they_are(open_page, fabric):
    """By mouse a GPU, by keyboard a node; the group with its figures."""
    page = open_page("fabric", at=fabric)
    page.wait_for_selector('.cell[data-group="default/train"]')
    page.locator('.cell[data-group="default/train"]').first.hover()
    figure = page.locator(".figure")
    expect(figure).to_contain_text("has GPU 0 of group default/train (2 members bound, leaf ")
    expect(figure).to_contain_text("GB/s")
    page.locator('[data-node="p1s2-0"]').focus()
    expect(figure).to_contain_text("default/pod-single has GPU")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.node") == "p1s2-1"
    expect(figure).to_have_text("p1s2-1: 8 of 8 GPUs free.")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("p1s2-1")


def test_a_chosen_group_is_stressed_and_kept_in_the_address(open_page, fabric):
    """The GPUs of all others are faded."""
    page = open_page("fabric", at=fabric)
    page.wait_for_selector(".tile")
    page.get_by_role("combobox").select_option("default/train")
    expect(page.locator(".tile .cell:not(.faded)[data-gpu]")).to_have_count(16)
    assert page.url.endswith("#/fabric?group=default%2Ftrain")


def test_a_pod_names_the_other_members(open_page, fabric):
    """And links to its group; one that waits says how many are here."""
    page = open_page("pod/default/pod-t0", at=fabric)
    other = fabric.get("/api/v1/pods/default/pod-t1").json()["node"]
    settled(page, f"Beside pod-t1 on {other}.")
    page.get_by_role("link", name="default/train").click()
    settled(page, "2 members bound")
    waits = open_page("pod/default/pod-w0", at=fabric)
    settled(waits, "Member of group default/sweep: 3 of 4 members are here")


def test_a_member_that_waits_is_not_said_to_be_placed_now(open_page, fabric):
    """Nodes fit it alone; they are none that it gets before the others have room."""
    page = open_page("pod/default/pod-w0", at=fabric)
    alone = page.get_by_role("region", name="Would fit without its group")
    expect(alone.locator(".gpu.in")).to_have_count(8)
    expect(page.get_by_text("The group gets nodes only once there is room")).to_have_count(1)
    expect(page.get_by_role("region", name="Would be chosen now")).to_have_count(0)
    # Not where there is no group.
    placed = open_page("pod/default/pod-single", at=fabric)
    settled(placed, "Explanation")
    expect(placed.get_by_text("The group gets nodes only once")).to_have_count(0)


def test_groups_whose_names_have_one_hash_differ_in_colour(open_page, fabric):
    """In the list and in the picture; the colour is the group's in both."""
    other = next(f"g{i}" for i in range(1000) if hashed(f"default/g{i}") == hashed("default/train"))
    place(fabric, pod(1, uid="same", group=other), ["alone-0"])
    page = open_page("groups", at=fabric)
    settled(page, f"default/{other}")
    rows = page.get_by_role("region", name="Groups").locator("tbody tr")
    listed = {
        key: fill(rows.filter(has=page.get_by_role("link", name=key, exact=True)).locator(".cell"))
        for key in ("default/train", f"default/{other}")
    }
    page.evaluate("location.hash = '#/fabric'")
    page.wait_for_selector(f'.cell[data-group="default/{other}"]')
    shown = {key: fill(page.locator(f'.cell[data-group="{key}"]').first) for key in listed}
    delete(fabric, "pod-same")
    assert shown == listed
    assert len(set(shown.values())) == 2


def hashed(key: str) -> int:
    """The colour's number that a key would have by itself: FNV-1a of 32 bits, of 12."""
    value = 2166136261
    for char in key:
        value = (value ^ ord(char)) * 16777619 & 0xFFFFFFFF
    return value % 12


def fill(cell: Locator) -> str:
    """The colour of a cell."""
    return str(cell.evaluate("one => getComputedStyle(one).getPropertyValue('--fill')"))


def test_short_words_of_the_list_are_not_broken(open_page, fabric):
    """`waiting` and `18 s` are on one line, beside columns of long sentences."""
    page = open_page("groups", at=fabric)
    settled(page, "2 groups, 1 waits")
    heights = page.locator("td .whole").evaluate_all(
        "all => all.map(one => one.getClientRects().length)"
    )
    assert heights == [1] * len(heights)
    row = page.get_by_role("region", name="Groups").locator("tbody tr").first
    swatch, link = row.locator(".cell").bounding_box(), row.get_by_role("link").bounding_box()
    assert link["y"] < swatch["y"] + swatch["height"]


def test_a_change_of_a_group_appears_without_a_reload(open_page, fabric):
    """By the stream, which names it: it comes, and it goes with its only member."""
    page = open_page("groups", at=fabric)
    settled(page, "2 groups, 1 waits")
    place(fabric, pod(1, uid="short", group="short"), ["alone-0"])
    settled(page, "default/short")
    delete(fabric, "pod-short")
    settled(page, "2 groups, 1 waits")


def test_a_network_without_labels_is_said_in_words(open_page):
    """Not an empty picture."""
    page = open_page("pending")
    show_unlabelled(page, "")
    settled(page, "No node has labels that say where it is in the network")
    expect(page.locator(".tile")).to_have_count(0)
    groups = open_page("groups")
    settled(groups, "No groups")


def test_names_like_scripts_are_text(open_page, fabric):
    """Those of domains, groups and nodes."""

    def rename(route):
        body = route.fetch().json()
        for item in body["items"]:
            item["name"] = SCRIPT_NAME
            for one in (*item.get("domains", ()), *item.get("gpus", ())):
                one |= {key: SCRIPT_NAME for key in ("name", "level", "group") if one.get(key)}
        body["items"] = [one for one in body["items"] if one.get("domains") != []][:1]
        route.fulfill(content_type="application/json", body=json.dumps(body | {"continue": None}))

    page = open_page("pending", at=fabric)
    page.route("**/api/v1/nodes?*", rename)
    page.route("**/api/v1/groups?*", rename)
    page.evaluate("location.hash = '#/fabric'")
    page.wait_for_selector(".tile")
    expect(page.locator(".group.domain h2").first).to_contain_text(SCRIPT_NAME)
    page.evaluate("location.hash = '#/groups'")
    settled(page, f"default/{SCRIPT_NAME}")
    assert page.locator("main img").count() == 0


def test_five_thousand_nodes_are_usable(open_page, tmp_path):
    """Few tiles are in the document, wherever it is scrolled to."""
    cluster = write(tmp_path / "c.yaml", leaves(5, 125, 8))
    with run_extender(cluster, port=0, log=tmp_path / "log") as client:
        client.timeout = 60
        client.get("/api/v1/nodes", params={"limit": 500})
        page = open_page("fabric", at=client)
        page.wait_for_selector("text=/^5,000 nodes$/", timeout=60_000)
        assert 0 < most_tiles(page) < 500
        page.close()  # before the extender ends, which the page would complain about
