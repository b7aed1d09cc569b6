"""The machine's own Chromium, headless, what axe-core finds on a page, and how it scrolls."""

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

__all__ = ["chromium", "longest_task_ms", "serious_faults", "settled", "slowness"]

SHOWN_WITHIN_MS = 30_000
"""Of what is expected of a page: on a busy machine an answer and its drawing take seconds."""
LOOP_MS = 100.0
"""The loop takes some 60 ms on a quiet machine; below this nothing is corrected."""
_LOOP = """() => {
    const begun = performance.now();
    let sum = 0;
    for (let i = 0; i < 3e7; i++) sum += i % 7;
    window.kept = sum;
    return performance.now() - begun;
}"""


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


def longest_task_ms(page: Page) -> float:
    """How long the longest task above 50 ms took while the view was scrolled; 0 without one.

    In the time of a quiet machine: where a fixed loop of `LOOP_MS` takes longer, other programs
    have the processor, and the page would have had it so much sooner.
    """
    page.evaluate(
        "window.tasks = []; new PerformanceObserver(list => tasks.push(...list.getEntries()"
        ".map(one => one.duration))).observe({type: 'longtask'})"
    )
    # The calmest of three: other programs of the machine make long tasks too.
    return min(_scroll(page, pixels) for pixels in (2000, -2000, 2000))


def slowness(page: Page) -> float:
    """How many times as long as on a quiet machine a fixed loop takes now, 1 or more."""
    taken_ms = float(page.evaluate(_LOOP))
    return max(taken_ms / LOOP_MS, 1.0)


def _scroll(page: Page, pixels: int) -> float:
    """Turn the wheel 30 times."""
    before = slowness(page)
    page.evaluate("tasks.length = 0")
    for _ in range(30):
        page.mouse.wheel(0, pixels)
        page.wait_for_timeout(30)
    longest_ms = float(max(page.evaluate("tasks"), default=0))
    return longest_ms / max(before, slowness(page))
