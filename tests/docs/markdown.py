"""The project's Markdown files as data: code blocks, links, prose."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OF_KUBECTL = "$ kubectl coterie "
"""How a block of commands begins that run on a cluster."""

_FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#+ (?P<title>.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced code block: its language, its text and the line where it begins."""

    language: str
    text: str
    line: int


def documents() -> list[Path]:
    """Every Markdown file of the project, in order."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def document_id(path: Path) -> str:
    """Name of a document in a test id."""
    return path.relative_to(ROOT).as_posix()


def blocks(path: Path) -> list[Block]:
    """Every fenced code block of a document."""
    text = path.read_text(encoding="utf-8")
    return [
        Block(m["language"], m["text"], text.count("\n", 0, m.start()) + 1)
        for m in _FENCE.finditer(text)
    ]


def sessions(text: str) -> list[tuple[str, str]]:
    """Split a console block into commands (lines that begin with `$ `) and what each prints."""
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)
    assert parts[0] == "", "a console block begins with '$ '"
    pairs = [re.split(r"(?<!\\)\n", part, maxsplit=1) for part in parts[1:]]
    return [(command, expected) for command, expected in pairs]


def prose(path: Path) -> str:
    """The document without its code blocks, each replaced by blank lines of the same number."""
    text = path.read_text(encoding="utf-8")
    return _FENCE.sub(lambda m: "\n" * m[0].count("\n"), text)


def links(path: Path) -> list[str]:
    """Every link target of a document."""
    return [m["target"] for m in _LINK.finditer(prose(path))]


def anchors(path: Path) -> set[str]:
    """The anchors of a document: of its headings, as forges write them, and those set by hand."""
    text = prose(path)
    titles = [m["title"].lower() for m in _HEADING.finditer(text)]
    of_titles = {re.sub(r"[^\w\- ]", "", title).strip().replace(" ", "-") for title in titles}
    return of_titles | set(re.findall(r'<a id="([^"]+)"></a>', text))


def section(text: str, name: str) -> tuple[str, str, str]:
    """Split a document at its marked section: what is before, inside and after the marks."""
    begin = re.search(rf"^<!-- {re.escape(name)}\b.*-->\n", text, re.MULTILINE)
    end = text.find(f"<!-- end of {name} -->")
    if begin is None or end < begin.end():
        msg = f"no section '<!-- {name} ... -->' to '<!-- end of {name} -->'"
        raise ValueError(msg)
    return text[: begin.end()], text[begin.end() : end], text[end:]
