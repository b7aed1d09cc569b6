"""docs/operator-guide.md: reasons and Events as the code has them, and the order of a removal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from extender.observe.events import EventReason
from extender.protocol import Outlook, Reason
from tests.docs.chart_values import chart_values
from tests.docs.markdown import ROOT, blocks, section
from tests.docs.settings_table import table
from topology.groups import DEFAULT_FAMILIES

if TYPE_CHECKING:
    from collections.abc import Iterator

PATH = ROOT / "docs" / "operator-guide.md"
PAGE = PATH.read_text(encoding="utf-8")
CHAPTERS = (
    *("Choose a mode", "Install", "Check", "Migrate", "Configure", "Watch"),
    *("Upgrade and roll back", "Remove", "Troubleshoot"),
)


def subsection(heading: str) -> str:
    """The text under a heading of the third level."""
    return re.split(r"\n##+ ", PAGE.partition(f"\n### {heading}\n")[2])[0]


def test_labels_of_network_domains_are_those_that_are_read():
    """Level by level; an operator labels nodes by this table."""
    rows = re.findall(r"^\| (`[^|]+) \| (`[^|]+) \|", subsection("Network domains"), re.MULTILINE)
    shown = [dict(zip(levels.split(", "), keys.split(", "), strict=True)) for levels, keys in rows]
    assert shown == [
        {f"`{one.level}`": " or ".join(f"`{key}`" for key in one.keys) for one in family.levels}
        for family in DEFAULT_FAMILIES
    ]


def test_chapters_are_in_the_order_of_the_work():
    """It is read from top to bottom."""
    assert tuple(re.findall(r"^## (.+)$", PAGE, re.MULTILINE)) == CHAPTERS


def reasons() -> str:
    """A table for each outlook, below what it says."""
    parts: list[str] = []
    for outlook in Outlook:
        rows = [
            (f"{one.value} (`{one.label}`)", one.row.advice)
            for one in Reason
            if one.row.outlook is outlook
        ]
        parts.append(f"\n{outlook.value}\n\n{table(('sentence (label)', 'what to do'), rows)}")
    return "".join(parts) + "\n"


def test_reasons_are_generated(check_golden):
    """A user who sees a sentence in an event looks it up here, word for word."""
    before, _, after = section(PATH.read_text(encoding="utf-8"), "reasons")
    check_golden(PATH, before + reasons() + after)


@pytest.mark.parametrize("reason", EventReason)
def test_every_event_is_explained(reason):
    """Whoever finds a reason in `kubectl describe` looks it up here."""
    assert f"\n| `{reason.value}` |" in subsection("Events")


def settings_of_commands() -> Iterator[str]:
    """Every value that a command of the page sets."""
    for one in blocks(PATH):
        yield from re.findall(r"--set(?:-string)? ([\w.]+)=", one.text)


def test_values_that_the_page_names_exist():
    """In commands and in prose; those of `settings` are the program's."""
    known = {one.path for one in chart_values()}
    table = PAGE.partition("\n## Configure\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"`((?:plugin|extender)\.\w+)(?:\.\w+)?`", table))
    assert named
    assert (named | set(settings_of_commands())) - known == set()


def test_the_plugin_cleans_before_it_is_removed():
    """After `helm uninstall` no pod is left that may remove what is on the nodes."""
    remove = PAGE.partition("\n## Remove\n")[2].partition("\n## ")[0]
    assert 0 < remove.find("plugin.clean=true") < remove.find("\nhelm uninstall ")
    assert 0 < remove.find("patch daemonset") < remove.find("kubectl delete --ignore-not-found -f")
