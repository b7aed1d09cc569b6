"""Foreign XML text -> an element tree, without what makes XML dangerous.

What it answers: the root element of a document, or why it cannot be read.
It never expands an entity that the document itself declares (a few lines of those blow up to
gigabytes), never loads an external DTD, and never lets depth run away
(`topology.importers.dispatch` bounds the size).

Method: expat with handlers of its own that feed `xml.etree`'s tree builder; a declaration of an
entity stops the parser. `<!DOCTYPE topology SYSTEM "hwloc.dtd">`, which hwloc writes, declares
nothing and is skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree.ElementTree import TreeBuilder
from xml.parsers import expat

from topology.errors import ImportFormatError, quote

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

__all__ = ["MAX_DEPTH", "find_attribute", "parse_xml"]

MAX_DEPTH = 48
"""Deepest nesting. The deepest recording has 12 levels of packages, bridges and devices."""


class _Guard:
    """Counts depth and refuses declarations while the parser runs."""

    def __init__(self, what: str, builder: TreeBuilder) -> None:
        self._what = what
        self._builder = builder
        self._depth = 0

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            msg = (
                f"{self._what}: element {quote(tag)} is nested {self._depth} deep, "
                f"expected at most {MAX_DEPTH}"
            )
            raise ImportFormatError(msg)
        self._builder.start(tag, attributes)

    def end(self, tag: str) -> None:
        self._depth -= 1
        self._builder.end(tag)

    def entity(self, name: str, *_: object) -> None:
        msg = f"{self._what}: declares the entity {quote(name)}, expected no entity declarations"
        raise ImportFormatError(msg)


def parse_xml(text: str, what: str) -> Element:
    """Parse a document; `what` names it in messages.

    Raises `ImportFormatError` where the text is not well-formed XML, declares entities, or is
    nested deeper than `MAX_DEPTH`.

    >>> parse_xml('<system version="1"/>', "NCCL topology XML").tag
    'system'
    """
    builder = TreeBuilder()
    guard = _Guard(what, builder)
    parser = expat.ParserCreate()
    parser.StartElementHandler = guard.start
    parser.EndElementHandler = guard.end
    parser.CharacterDataHandler = builder.data
    parser.EntityDeclHandler = guard.entity
    try:
        parser.Parse(text.strip("\ufeff \t\r\n"), True)  # noqa: FBT003 - expat's own signature
    except (expat.ExpatError, UnicodeEncodeError) as error:
        msg = f"{what}: not well-formed XML ({error}), expected a complete document"
        raise ImportFormatError(msg) from error
    return builder.close()


def find_attribute(element: Element, name: str) -> str | None:
    """Read an attribute, stripped; None where it is absent or empty."""
    return (element.get(name) or "").strip() or None
