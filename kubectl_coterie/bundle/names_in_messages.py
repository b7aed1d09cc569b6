"""Finds names in what Coterie's own Events say of groups and network domains.

A group may be gone when the bundle is made, and of a Job or a PodGroup nothing else may name it:
its Events then are the only place, and their wording (`extender.observe.group_events` and
`extender.watch.owner_reader`) gives the names away. It finds nothing in other texts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kubectl_coterie.bundle.kept_words import GROUP_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["names_in_group", "names_in_message"]

_GROUP = re.compile(r"\b(?:members of|reserved for) ([a-z0-9-]+)/([^\s,]+)(?=,| are | differ)")
_OWNER = re.compile(r"\bthe pods of (?:Job|JobSet|PodGroup) ([a-z0-9-]+)/([a-z0-9.-]+) are placed ")
_MEMBERS = re.compile(r" none is placed: (\S+) states .*, (\S+) (?:size|domain|policy|resource) ")
_DOMAINS = (
    re.compile(r"\bthe (?:largest|freest) \S+ \((\S+)\) has room for "),
    re.compile(r"\b[0-9]+ nodes? of \S+ (\S+) reserved for "),
    re.compile(r"^[a-z0-9-]+ (\S+), [0-9]+ nodes?\b"),
)
"""As in `GroupHasNoRoom`, `GroupReserved` and `GroupPlaced`: a domain is its path, with slashes."""


def names_in_message(text: str) -> Iterator[tuple[str, str]]:
    """Kind and name of each."""
    for namespace, group in _GROUP.findall(text):
        yield "namespace", namespace
        yield from names_in_group(group)
    for namespace, owner in _OWNER.findall(text):
        yield "namespace", namespace
        yield "group", owner
    for names in _MEMBERS.findall(text):
        yield from (("pod", name) for name in names)
    for pattern in _DOMAINS:
        for domain in pattern.findall(text):
            yield from (("domain", step) for step in domain.split("/"))


def names_in_group(name: str) -> Iterator[tuple[str, str]]:
    """The parts of a group's name but for its kind, of those that are inferred.

    >>> list(names_in_group("indexed-job/train/0f0e4f3b"))
    [('group', 'train'), ('group', '0f0e4f3b')]
    """
    yield from (("group", part) for part in name.split("/") if part not in GROUP_KINDS)
