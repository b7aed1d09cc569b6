"""Chromium over an extender of its own, on an embedded cluster with pods."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from benchmarks.demo.process import run_extender
from tests.integration.extender.embedded_client import create, filtered, place
from tests.page.chromium import chromium
from tests.unit.extender.pods import pod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from httpx import Client
    from playwright.sync_api import Browser, Page

CLUSTER = "8x dgx-h100, 6x dgx-1-v100, 1x dgx-1-v100-dead-link, 4x 8x-l4, 2x dgx-a100"
SIZES = (4, 2, 8, 1, 2, 4, 2, 8, 4, 1)
SCRIPT_NAME = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The machine's own Chromium, headless."""
    with chromium() as found:
        yield found


@pytest.fixture(scope="session")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """The extender, with placed pods, one of them named like a script, and one that waits."""
    log = tmp_path_factory.mktemp("page") / "extender.log"
    with run_extender(CLUSTER, port=0, log=log) as found:
        nodes = [node["name"] for node in found.get("/api/v1/nodes").json()["items"]]
        for i, size in enumerate(SIZES):
            place(found, pod(size, uid=f"u{i}"), nodes[i * 2 : i * 2 + 2])
        strange = pod(2, uid="strange")
        strange["metadata"]["name"] = SCRIPT_NAME
        place(found, strange, ["dgx-a100-1"])
        waits = create(found, pod(8, uid="waits"))
        assert not filtered(found, waits, ["dgx-a100-1"])
        yield found


@pytest.fixture
def open_page(browser: Browser, client: Client) -> Iterator[Callable[..., Page]]:
    """Opens a view; at the end no script has failed and the policy has stopped nothing."""
    contexts = []
    complaints: list[str] = []

    def go(
        view: str,
        *,
        theme: str = "light",
        width: int = 1280,
        at: Client = client,
        fails: bool = False,
    ) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 860},
            color_scheme="dark" if theme == "dark" else "light",
            reduced_motion="reduce",
        )
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
        if not fails:
            page.on("console", lambda said: complaints.append(said.text) if _is_bad(said) else None)
        page.goto(
            f"{at.base_url}ui/#/{view}"
            if str(at.base_url).endswith("/")
            else f"{at.base_url}/ui/#/{view}"
        )
        page.wait_for_selector("h1")
        expect(page.locator("#live")).not_to_be_empty()
        return page

    yield go
    for context in contexts:
        context.close()
    assert complaints == []


def _is_bad(said: object) -> bool:
    text = f"{getattr(said, 'type', '')} {getattr(said, 'text', '')}"
    address = (getattr(said, "location", None) or {}).get("url", "")
    # The browser itself logs an answer that is no success; the page shows it as a sentence.
    return text.startswith(("error", "warning")) and not re.search(
        "/api/v1/(explain/|what-if)", address
    )


@pytest.fixture
def keep_picture(tmp_path: Path) -> Callable[[Page, str], Path]:
    """Keeps a picture of the page, in the folder that PAGE_SHOTS names, if it names one."""
    folder = Path(os.environ.get("PAGE_SHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)

    def keep(page: Page, name: str) -> Path:
        path = folder / f"{name}.png"
        page.screenshot(path=path)
        return path

    return keep
