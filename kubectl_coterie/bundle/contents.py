"""What a bundle holds: files of JSON and of lines, what could not be had, and the archive of both.

Owners, modes and times of the members are always the same: they are those of whoever collects.
"""

from __future__ import annotations

import io
import json
import tarfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from kubectl_coterie.bundle.free_text import without_free_text
from kubectl_coterie.bundle.learned_names import names_in_log, names_in_value

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import IO

    from kubectl_coterie.bundle.name_hashes import NameHashes
    from kubectl_coterie.cluster import Read

__all__ = ["FOLDER", "MANIFEST", "Contents", "write_archive"]

T = TypeVar("T")

FOLDER = "coterie-support"
"""The folder of all members, so that unpacking makes one entry."""
MANIFEST = "manifest.json"


def _as_it_is(value: object) -> object:
    return value


@dataclass(frozen=True, slots=True)
class _Missing:
    """What is not in the bundle, and why."""

    what: str
    why: str


@dataclass
class Contents:
    """Collected so far: `values` are JSON, `logs` lines of text, by their path.

    `kinds` is what objects of a file are, `known` are kinds and names that paths may hold.
    """

    values: dict[str, object] = field(default_factory=dict[str, object])
    logs: dict[str, str] = field(default_factory=dict[str, str])
    kinds: dict[str, str] = field(default_factory=dict[str, str])
    missing: list[_Missing] = field(default_factory=list[_Missing])
    known: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def add(self, path: str, value: object, *, kind: str | None = None) -> None:
        """Add a JSON value, whose objects are of this kind; None: it names no user's object."""
        self.values[path] = value
        if kind is not None:
            self.kinds[path] = kind

    def add_read(
        self,
        path: str,
        read: Read[T],
        make: Callable[[T], object] = _as_it_is,
        *,
        kind: str | None = None,
    ) -> None:
        """Add what was read, or why it was not."""
        if read.value is None:
            self.lack(path, read.missing)
        else:
            self.add(path, make(read.value), kind=kind)

    def add_log(self, path: str, read: Read[str]) -> None:
        """Add lines that were read, or why they were not."""
        if read.value is None:
            self.lack(path, read.missing)
        else:
            self.logs[path] = read.value

    def lack(self, what: str, why: str) -> None:
        """Note what could not be collected."""
        self.missing.append(_Missing(what, why))

    def learn(self, hashes: NameHashes) -> None:
        """Tell the hashes every name that people chose, as far as it can be found."""
        for kind, name in self.known:
            hashes.learn(kind, name)
        # First the objects of known kinds, so that their names have these kinds everywhere.
        for path in sorted(self.values, key=lambda path: path not in self.kinds):
            for kind, name in names_in_value(self.values[path], self.kinds.get(path, "")):
                hashes.learn(kind, name)
        for text in (*self.logs.values(), *(one.why for one in self.missing)):
            for kind, name in names_in_log(text):
                hashes.learn(kind, name)

    def members(self, about: dict[str, object], hashes: NameHashes | None) -> dict[str, bytes]:
        """The files by path, hashed if there are `hashes`; the manifest is first."""
        if hashes is not None:
            self.learn(hashes)

        def shown(text: str) -> str:
            return text if hashes is None else hashes.text(text)

        found: dict[str, bytes] = {}
        for path, value in self.values.items():
            kept = value if hashes is None else hashes.value(without_free_text(value))
            found[shown(path)] = _json(kept)
        for path, text in self.logs.items():
            lines = text if hashes is None else hashes.lines(text)
            found[shown(path)] = lines.encode(errors="replace")
        manifest = {
            **about,
            "names_hashed": hashes is not None,
            "files": [{"path": path, "bytes": len(octets)} for path, octets in found.items()],
            "missing": [{"what": shown(one.what), "why": shown(one.why)} for one in self.missing],
        }
        return {MANIFEST: _json(manifest), **found}


def write_archive(members: dict[str, bytes], file: IO[bytes]) -> None:
    """Write a gzip-compressed tar archive."""
    with tarfile.open(fileobj=file, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        for path, octets in members.items():
            member = tarfile.TarInfo(f"{FOLDER}/{path}")
            member.size = len(octets)
            archive.addfile(member, io.BytesIO(octets))


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode(errors="replace")
