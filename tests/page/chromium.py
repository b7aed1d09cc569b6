"""The machine's own Chromium, headless, what axe-core finds on a page, and what scrolling makes."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from importlib.resources import files
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect, sync_playwright

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

__all__ = ["chromium", "most_tiles", "serious_faults", "settled"]

SHOWN_WITHIN_MS = 30_000
"""Of what is expected of a page: on a busy machine an answer and its drawing take seconds."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser while the block lasts."""
    program = shutil.which("chromium")
    if program is None:
        pytest.fail("chromium is not on PATH; `make test-page` installs Debian's")
    expect.set_options(timeout=SHOWN_WITHIN_MS)
    with sync_playwright() as play:
        # Root, as in containers, has no sandbox of its own.
        found = play.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield found
        found.close()


def settled(page: Page, text: str) -> None:
    """Wait until the view shows this."""
    # Not wait_for_function: it evaluates text in the page, which the page's policy refuses.
    expect(page.locator("body")).to_contain_text(text, use_inner_text=True)
    page.wait_for_timeout(150)


def serious_faults(page: Page) -> list[tuple[str, list[str]]]:
    """What axe-core judges as serious or critical: the rule, and the first elements."""
    # The package bundles axe-core; its own code has no types and adds nothing here.
    page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("axe.run().then(results => results.violations)")
    serious = [one for one in found if one["impact"] in {"serious", "critical"}]
    return [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in serious]


def most_tiles(page: Page) -> int:
    """The most tiles in the document while the view is scrolled far down, and up again."""
    most = 0
    for pixels in (2000, -2000):
        for _ in range(30):
            page.mouse.wheel(0, pixels)
            page.evaluate("() => new Promise(done => requestAnimationFrame(() => done()))")
            most = max(most, page.locator(".tile").count())
    return most
