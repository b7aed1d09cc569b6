"""Colour and progress: on terminals alone."""

from __future__ import annotations

import asyncio
import io

import pytest

from kubectl_coterie.terminal import Output, Progress, Style
from tests.virtual_time import run_at_once


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        """It is."""
        return True


@pytest.mark.parametrize(
    ("stream", "environment", "is_on"),
    [
        pytest.param(Terminal(), {}, True, id="a terminal"),
        pytest.param(io.StringIO(), {}, False, id="a pipe"),
        pytest.param(Terminal(), {"NO_COLOR": "1"}, False, id="NO_COLOR"),
        pytest.param(Terminal(), {"NO_COLOR": ""}, True, id="an empty NO_COLOR says nothing"),
        pytest.param(Terminal(), {"TERM": "dumb"}, False, id="a terminal without colour"),
    ],
)
def test_where_colour_is(monkeypatch, stream, environment, is_on):
    """https://no-color.org, and what kubectl's users expect."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert Output(stream=stream).style.is_on is is_on


def test_paint():
    """Names are joined; without colour or names the text stays."""
    assert Style(is_on=True).paint("x", "bold", "red") == "\x1b[1;31mx\x1b[0m"
    assert Style(is_on=True).paint("x") == "x"
    assert Style(is_on=False).paint("x", "red") == "x"


@pytest.mark.parametrize(
    ("share", "code"), [(1.0, "32"), (0.9, "32"), (0.89, "33"), (0.5, "33"), (0.49, "31")]
)
def test_shares_have_colours(share, code):
    """Green from 0.9, since such sets count as placeable; unknown has none."""
    style = Style(is_on=True)
    assert style.share("x", share) == f"\x1b[{code}mx\x1b[0m"
    assert style.share("x", None) == "x"


def steps(stream, seconds):
    """What a step of so many seconds writes."""

    async def run() -> None:
        async with Progress(stream).step("reading"):
            await asyncio.sleep(seconds)

    run_at_once(run())
    return stream.getvalue()


def test_a_step_that_takes_long_is_shown_and_gone():
    """In one line of the terminal, from its second second on."""
    line = "\r\x1b[K"
    assert steps(Terminal(), 2.5) == f"{line}reading … 1 s{line}reading … 2 s{line}"
    assert steps(Terminal(), 0.5) == ""


def test_a_step_that_is_quick_shows_nothing():
    """Nor does one whose standard error is a file."""
    assert steps(Terminal(), 0.0) == ""
    assert steps(io.StringIO(), 0.0) == ""
