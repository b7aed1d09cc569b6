"""Each view of the page in a real Chromium."""

from __future__ import annotations

import json
import re
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect

from benchmarks.demo.process import run_extender
from tests.integration.extender.embedded_client import delete, place
from tests.page.chromium import most_tiles, serious_faults, settled
from tests.page.conftest import SCRIPT_NAME
from tests.unit.extender.pods import pod

pytestmark = pytest.mark.page

VIEWS = {
    "cluster": "",
    "node": "node/dgx-1-v100-0",
    "dead-link": "node/dgx-1-v100-dead-link-0",
    "pod": "pod/default/pod-u0",
    "waiting": "pod/default/pod-waits",
    "pending": "pending",
    "what-if": "what-if",
    "capacity": "capacity",
}
SHOWN = {
    "cluster": "168 GPUs",
    "node": "NUMA 0",
    "dead-link": "GPU 2 to GPU 6 has SYS in place of NV1",
    "pod": "If it were placed again now, it would get",
    "waiting": "of 21 nodes fit",
    "pending": "default/pod-waits",
    "what-if": "1 pod would be placed.",
    "capacity": "a restart of the extender loses it",
}
HIDDEN_NAMES = """() => {
    const circles = [...document.querySelectorAll(".machine .gpu circle")];
    const isOver = (name) => (circle) => {
        const box = name.getBBox();
        const at = new DOMPoint(circle.cx.baseVal.value, circle.cy.baseVal.value)
            .matrixTransform(circle.getScreenCTM()).matrixTransform(name.getScreenCTM().inverse());
        const dx = at.x - Math.min(Math.max(at.x, box.x), box.x + box.width);
        const dy = at.y - Math.min(Math.max(at.y, box.y), box.y + box.height);
        return Math.hypot(dx, dy) < circle.r.baseVal.value;
    };
    return [...document.querySelectorAll(".machine .nic")]
        .filter((name) => circles.some(isOver(name))).map((name) => name.textContent);
}"""
"""The names of NICs that a GPU's circle covers, in the name's own frame."""


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_shows_its_content_and_is_accessible(open_page, keep_picture, view, theme):
    """Its content, and nothing that axe-core judges as serious or critical."""
    page = open_page(VIEWS[view], theme=theme)
    settled(page, SHOWN[view])
    keep_picture(page, f"{view}-{theme}")
    assert serious_faults(page) == []


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_fits_a_telephone(open_page, keep_picture, view):
    """390 pixels without scrolling sideways."""
    page = open_page(VIEWS[view], width=390)
    settled(page, SHOWN[view].removeprefix("NUMA 0"))
    keep_picture(page, f"{view}-390")
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_names_of_nics_are_clear_of_gpus(open_page):
    """A circle over a name hides it: no point of a name's box is within a GPU's circle."""
    page = open_page("node/dgx-h100-0")
    settled(page, "mlx5_")
    expect(page.locator(".machine .nic")).to_have_count(8)
    assert page.evaluate(HIDDEN_NAMES) == []


def test_the_headline_says_what_the_api_says(open_page, client):
    """GPUs, free and stranded ones and pods that wait, as `/api/v1/cluster` has them."""
    place(client, pod(6, uid="leaves-two"), ["dgx-h100-7"])
    page = open_page("")
    settled(page, "168 GPUs")
    sums = client.get("/api/v1/cluster").json()
    headline = page.inner_text("h1")  # before it says what is so without the pod
    delete(client, "pod-leaves-two")
    assert sums["gpus_stranded"] >= 2
    assert headline == (
        f"168 GPUs, {sums['gpus_free']} free, {sums['gpus_stranded']} of them can form "
        f"no set of four, 1 pod waits"
    )


def test_the_headline_names_no_stranded_gpus_where_there_are_none(open_page):
    """And the plural of pods, as the page's own module has it."""
    page = open_page("")
    said = page.evaluate(
        """async () => (await import("./words.js")).headline(
            {gpus: 8, gpus_free: 8, gpus_stranded: 0, gpus_unavailable: 0, gpus_unhealthy: 0,
             pods_pending: 0})"""
    )
    assert said == "8 GPUs, 8 free, no pods wait"


def test_a_change_appears_without_a_reload(open_page, client):
    """A pod that ends frees its cells by the stream of changes."""
    place(client, pod(8, uid="short"), ["dgx-h100-7"])
    page = open_page("")
    page.wait_for_selector('[data-node="dgx-h100-7"] >> text=full')
    delete(client, "pod-short")
    page.wait_for_selector('[data-node="dgx-h100-7"] >> text=8 free')
    expect(page.locator("#live")).to_have_text("Live")


def test_names_like_scripts_are_text(open_page):
    """Names of a pod, a node and a machine type, and a problem, are shown as they are written."""
    page = open_page("node/dgx-a100-1")
    page.get_by_role("link", name=f"default/{SCRIPT_NAME}").first.click()
    expect(page.locator("h1")).to_have_text(f"default/{SCRIPT_NAME}")
    page.goto("about:blank")

    def rename(route):
        body = route.fetch().json()
        for item in body["items"]:
            item["name"] = item["machine"] = SCRIPT_NAME
            item["problems"] = [SCRIPT_NAME]
        body["items"] = body["items"][:1]
        route.fulfill(content_type="application/json", body=json.dumps(body | {"continue": None}))

    other = open_page("pending")
    other.route("**/api/v1/nodes?*", rename)
    other.evaluate("location.hash = '#/'")
    other.wait_for_selector(".tile")
    assert other.get_attribute(".tile", "data-node") == SCRIPT_NAME
    assert other.inner_text(".tile .name") == "<img…alert(1)>"  # a long name is cut in the middle
    assert other.inner_text(".group h2") == SCRIPT_NAME
    assert other.locator("main img").count() == 0


def test_the_keyboard_walks_through_the_page(open_page):
    """Skip link, navigation, filters, tiles by arrow keys, a node, its sets."""
    page = open_page("")
    page.wait_for_selector(".tile")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "skip"
    page.keyboard.press("Enter")
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.classList.contains('tile')"):
            break
    first = page.evaluate("document.activeElement.dataset.node")
    page.keyboard.press("ArrowRight")
    second = page.evaluate("document.activeElement.dataset.node")
    assert second != first
    page.keyboard.press("End")
    last = page.evaluate("document.activeElement.dataset.node")
    assert last == page.locator(".tile").last.get_attribute("data-node")
    page.keyboard.press("Enter")
    page.wait_for_selector(".set")
    page.focus(".set")
    expect(page.locator("svg.machine.marked")).to_have_count(1)
    expect(page.locator(".figure")).to_contain_text("GB/s")


def test_a_search_finds_nodes_and_pods_by_a_part_of_their_names(open_page):
    """`/` goes there; the address holds it, so that a link leads to what is seen."""
    page = open_page("")
    page.wait_for_selector(".tile")
    page.keyboard.press("/")
    page.keyboard.type("POD-U0")
    expect(page.locator(".count")).to_have_text("1 of 21 nodes match")
    assert page.evaluate("location.hash") == "#/?find=POD-U0"
    again = open_page("?find=dgx-a100")
    expect(again.locator(".count")).to_have_text("2 of 21 nodes match")
    page.keyboard.type("/")
    expect(page.locator("input[type=search]")).to_have_value("POD-U0/")


def test_names_that_begin_alike_are_told_apart_and_stand_in_natural_order(open_page, tmp_path):
    """Of `gke-prod-gpu-po…` twelve tiles were one; 10 stood before 2."""
    pool = "gke-prod-gpu-pool-a2-highgpu-8g-1f2e3d4c"
    spec = tmp_path / "cluster.yaml"
    spec.write_text(f"groups: [{{count: 12, machine: dgx-a100, name: {pool}}}]")

    def rename(route):
        body = route.fetch().json()
        for i, item in enumerate(body["items"]):
            item["name"] = f"ip-10-{i % 2}-123-{200 + i}.us-west-2.compute.internal"
        route.fulfill(content_type="application/json", body=json.dumps(body))

    with run_extender(str(spec), port=0, log=tmp_path / "log") as client:
        page = open_page("", at=client)
        expect(page.locator(".tile")).to_have_count(12)
        assert page.locator(".tile .name").all_text_contents() == [str(i) for i in range(12)]
        expect(page.locator(".group")).to_contain_text(f"{pool}-…")
        expect(page.locator(f'[title^="{pool}-11:"]')).to_be_visible()
        page.close()
        page = open_page("pending", at=client)
        page.route("**/api/v1/nodes?*", rename)
        page.evaluate("location.hash = '#/'")
        expect(page.locator(".tile")).to_have_count(12)
        assert len({*page.locator(".tile .name").all_text_contents()}) == 12
        page.close()


def test_a_dead_link_is_dashed_and_said(open_page):
    """By what the whole machine has: in the drawing, in its legend and in a sentence."""
    page = open_page(VIEWS["dead-link"])
    settled(page, SHOWN["dead-link"])
    dead = page.locator("svg.machine .link.dead")
    expect(dead).to_have_count(1)
    assert dead.get_attribute("data-ends") == "2 6"
    assert dead.locator("title").text_content() == "GPU 2 to GPU 6: SYS in place of NV1"
    assert dead.evaluate("one => getComputedStyle(one).strokeDasharray") != "none"
    expect(page.locator(".legend")).to_contain_text("down or missing: other nodes of these GPUs")
    whole = open_page(VIEWS["node"])
    whole.wait_for_selector("svg.machine")
    expect(whole.locator(".link.dead, .notice.error")).to_have_count(0)


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_prints_its_content_without_controls(open_page, view):
    """Black on white, without bar, filters and buttons, on a few pages."""
    page = open_page(VIEWS[view], theme="dark")
    settled(page, SHOWN[view].removeprefix("NUMA 0"))
    page.emulate_media(media="print")
    for control in (".bar", ".filters", "button[type=submit]", "footer"):
        for one in page.locator(control).all():
            expect(one).to_be_hidden()
    expect(page.locator("h1")).to_be_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    printed = page.pdf()
    n_pages = printed.count(b"/Type /Page\n")
    assert printed.startswith(b"%PDF")
    assert 1 <= n_pages <= 8


def test_all_tiles_are_printed(open_page, client):
    """Also those outside the window, which are not in the document while it is only looked at."""
    page = open_page("", width=390)
    page.wait_for_selector(".tile")
    n_nodes = client.get("/api/v1/cluster").json()["n_nodes"]
    page.evaluate(
        "addEventListener('beforeprint', () => setTimeout(() => 0) && "
        "(window.printed = document.querySelectorAll('.tile').length))"
    )
    page.pdf()
    assert page.evaluate("window.printed") == n_nodes


def test_nothing_moves_where_motion_is_not_wanted(open_page):
    """`prefers-reduced-motion`: no transition and no animation, whatever the element."""
    page = open_page(VIEWS["node"])
    page.wait_for_selector("svg.machine .link")
    moving = "getComputedStyle(document.querySelector('svg.machine .link')).transitionDuration"
    assert page.evaluate(moving) == "0s"
    page.emulate_media(reduced_motion="no-preference")
    assert page.evaluate(moving) != "0s"


def test_a_pod_is_drawn_beside_the_runner_up(open_page, client):
    """The set that it has and the second one of its node, with figures and why that lost."""
    # On an empty cube mesh a set of two has a second, and both are on one machine.
    place(client, pod(2, uid="beside"), ["dgx-1-v100-5"])
    explained = client.get("/api/v1/explain/default/pod-beside").json()
    second = explained["bound"]["runner_up_set"]
    page = open_page("pod/default/pod-beside")
    settled(page, SHOWN["pod"])
    chosen, other = (
        page.get_by_role("region", name=name) for name in ("Chosen", "Runner-up on this node")
    )
    for card, gpus in (
        (chosen, explained["bound"]["containers"][0]["gpus"]),
        (other, second["gpus"]),
    ):
        marked = card.locator(".gpu.in")
        expect(marked).to_have_count(len(gpus))
        shown = marked.evaluate_all("all => all.map(one => +one.dataset.gpu)")
        assert sorted(shown) == sorted(gpus)
        expect(card.locator(".figure")).to_contain_text("of the best")
    expect(other).to_contain_text(f"Why not: {second['why']}.")
    expect(page.get_by_role("region", name="Containers")).to_contain_text("main")
    delete(client, "pod-beside")


def test_a_waiting_pod_is_drawn_where_it_would_go_and_on_the_second_node(open_page, client):
    """With why that node is second; those that do not fit by reason, with whose end would help."""
    explained = client.get("/api/v1/explain/default/pod-waits").json()
    second = explained["summary"]["runner_up"]
    page = open_page(VIEWS["waiting"])
    settled(page, SHOWN["waiting"])
    first = page.get_by_role("region", name="Would be chosen now")
    expect(first).to_contain_text(f"On {explained['nodes'][0]['node']}")
    other = page.get_by_role("region", name="Runner-up node")
    expect(other).to_contain_text(f"On {second['node']}")
    expect(other).to_contain_text(f"Why not: {second['why']}.")
    expect(other.locator(".gpu.in")).to_have_count(8)
    reasons = page.get_by_role("region", name="Why nodes do not fit")
    nearest = explained["summary"]["groups"][0]["nearest"]
    expect(reasons).to_contain_text(f"when {' and '.join(nearest['when_ended'])}")


def test_a_what_if_shows_where_pods_go_and_changes_nothing(open_page, client):
    """As the API answers the same question; the drawing, what is left, a drain, a new machine."""
    before = client.get("/api/v1/cluster").json()
    machine = client.get("/api/v1/nodes/dgx-h100-0").json()["machine"]
    wanted = {"size": 8, "count": 2, "affinity": "nvlink", "policy": "required", "add": machine}
    page = open_page(f"what-if?{urlencode(wanted)}")
    settled(page, "2 pods would be placed.")
    assert page.get_by_label("GPUs of a pod").input_value() == "8"
    manifest = {
        "metadata": {
            "name": "what-if",
            "namespace": "default",
            "annotations": {"coterie.gpu/affinity": "nvlink", "coterie.gpu/policy": "required"},
        },
        "spec": {
            "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]
        },
    }
    question = {
        "pods": [{"manifest": manifest, "count": 2}],
        "add": [{"machine": machine, "count": 1}],
    }
    answer = client.post("/api/v1/what-if", json=question).json()
    rows = page.get_by_role("region", name="Placements").locator("tbody tr")
    expect(rows).to_have_count(2)
    for row, placement in zip(rows.all(), answer["placements"], strict=True):
        expect(row).to_contain_text(placement["node"])
        expect(row).to_contain_text(f"{placement['share']:.0%}".replace("%", " %"))
    first = page.get_by_role("region", name=answer["placements"][0]["node"])
    expect(first.locator(".gpu.in")).to_have_count(8)
    left = page.get_by_role("region", name="Before and after")
    (h100,) = (one for one in answer["after"] if one["machine"] == machine)
    expect(left.get_by_role("row").filter(has_text=machine)).to_contain_text(
        f"{h100['nodes'] - 1} → {h100['nodes']}"
    )
    assert client.get("/api/v1/cluster").json()["generation"] == before["generation"]


def test_a_what_if_drains_a_node_and_takes_a_gpu_model(open_page):
    """Pods of the node are placed again; a pod that names a model goes nowhere else."""
    page = open_page("what-if")
    settled(page, SHOWN["what-if"])
    page.get_by_label("Drain").fill("dgx-a100-1")
    page.get_by_label("GPU model").select_option("NVIDIA L4")
    page.get_by_role("button", name="Try").click()
    settled(page, "3 pods would be placed.")
    placed = page.get_by_role("region", name="Placements").locator("tbody tr")
    expect(placed.filter(has_text=f"default/{SCRIPT_NAME} (drained)")).to_have_count(1)
    expect(placed.filter(has_text="default/what-if")).to_contain_text("8x-l4-")
    assert "drain=dgx-a100-1" in page.url
    page.get_by_label("Drain").fill("no-such-node")
    page.get_by_role("button", name="Try").click()
    settled(page, "no-such-node")
    expect(page.get_by_role("alert")).to_contain_text("/api/v1/what-if: ")


def test_a_what_if_of_nothing_that_fits_says_why(open_page):
    """A reason by number of nodes; a number out of range is not sent."""
    page = open_page("what-if?size=16")
    settled(page, "0 of 1 pod would be placed; the others would wait.")
    expect(page.get_by_role("region", name="Placements")).to_contain_text("21 nodes: ")
    asked: list[str] = []
    page.on("request", lambda one: asked.append(one.url) if one.method == "POST" else None)
    page.get_by_label("GPUs of a pod").fill("0")
    page.get_by_label("GPUs of a pod").press("Enter")
    page.wait_for_timeout(300)
    assert asked == []


def test_a_what_if_is_put_by_keyboard_alone(open_page):
    """Tab through the form, Enter asks, and the answer is announced."""
    page = open_page("what-if")
    settled(page, SHOWN["what-if"])
    page.get_by_label("GPUs of a pod").focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("2")
    for name in ("Pods", "Affinity", "Policy", "At least GB/s", "GPU model", "Drain"):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.labels[0].firstChild.data") == name
    page.keyboard.press("Enter")
    placed = page.get_by_role("region", name="Placements").locator("tbody tr")
    expect(placed).to_contain_text(re.compile(r"\{\d+, \d+\}"))
    expect(page.locator("[role=status] section")).to_have_count(1)


def test_pending_pods_show_whose_end_would_make_room(open_page):
    """In the list and on the pod's own page; the cluster's filter then keeps those nodes."""
    blocked = {
        "node": "dgx-1-v100-0",
        "gpus": [0, 1, 2, 3],
        "gbytes_per_s": 99.4,
        "share": 1.0,
        "when_ended": ["ml/eval-3"],
        "gpus_freed": 2,
    }

    def add(route):
        body = route.fetch().json()
        body["items"] = [one | {"would_fit": blocked} for one in body["items"]]
        route.fulfill(content_type="application/json", body=json.dumps(body))

    page = open_page("capacity")
    page.route("**/api/v1/pending?*", add)
    page.evaluate("location.hash = '#/pending'")
    says = "dgx-1-v100-0 has {0, 1, 2, 3}, 99.4 GB/s, when ml/eval-3 (2 GPUs) ends"
    settled(page, says)
    page.evaluate("location.hash = '#/pod/default/pod-waits'")
    settled(page, says)
    page.evaluate("location.hash = '#/?pending'")
    expect(page.locator(".tile")).to_have_count(1)
    assert page.locator(".tile").get_attribute("data-node") == "dgx-1-v100-0"


def test_a_filter_is_kept_in_the_address(open_page, client):
    """The machine that was chosen, also after a reload."""
    machine = client.get("/api/v1/nodes/8x-l4-0").json()["machine"]
    page = open_page("")
    page.wait_for_selector(".tile")
    page.get_by_label("Machine").select_option(machine)
    expect(page.locator(".tile")).to_have_count(4)
    assert page.url.endswith(f"#/?{urlencode({'machine': machine})}")
    page.reload()
    expect(page.locator(".tile")).to_have_count(4)


def test_a_route_that_fails_is_a_sentence(open_page):
    """Not an empty page, and what does answer is shown."""
    page = open_page("pending", fails=True)
    page.route("**/api/v1/nodes?*", lambda route: route.fulfill(status=500, body="oops"))
    page.evaluate("location.hash = '#/'")
    settled(page, "/api/v1/nodes: status 500")
    expect(page.locator("h1")).to_contain_text("168 GPUs")


def test_without_a_stream_it_polls(open_page):
    """Every five seconds, and it says so."""
    page = open_page("pending", fails=True)
    page.route("**/api/v1/changes", lambda route: route.fulfill(status=503, body="{}"))
    page.reload()
    page.wait_for_selector("text=Read every 5 s")


def test_the_theme_button_overrules_the_browser(open_page):
    """Light, then dark, and remembered."""
    page = open_page("")
    page.click("#theme")
    page.click("#theme")
    assert page.inner_text("#theme") == "Theme: dark"
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_five_thousand_nodes_are_usable(open_page, tmp_path):
    """Few tiles are in the document, wherever it is scrolled to."""
    with run_extender("5000x dgx-h100", port=0, log=tmp_path / "log") as client:
        client.timeout = 60
        client.get("/api/v1/nodes", params={"limit": 500})
        page = open_page("", at=client)
        page.wait_for_selector("text=/^5,000 nodes$/", timeout=60_000)
        assert 0 < most_tiles(page) < 500
        page.close()  # before the extender ends, which the page would complain about
