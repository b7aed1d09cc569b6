"""What a bundle holds: files of JSON and of lines, what could not be had, and the archive of both.

Owners, modes and times of the members are always the same: they are those of whoever collects.
"""

from __future__ import annotations

import io
import json
import tarfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import IO

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
    """Collected so far: `values` are JSON, `logs` lines of text, by their path."""

    values: dict[str, object] = field(default_factory=dict[str, object])
    logs: dict[str, str] = field(default_factory=dict[str, str])
    missing: list[_Missing] = field(default_factory=list[_Missing])

    def add(self, path: str, value: object) -> None:
        """Add a JSON value."""
        self.values[path] = value

    def add_read(self, path: str, read: Read[T], make: Callable[[T], object] = _as_it_is) -> None:
        """Add what was read, or why it was not."""
        if read.value is None:
            self.lack(path, read.missing)
        else:
            self.add(path, make(read.value))

    def add_log(self, path: str, read: Read[str]) -> None:
        """Add lines that were read, or why they were not."""
        if read.value is None:
            self.lack(path, read.missing)
        else:
            self.logs[path] = read.value

    def lack(self, what: str, why: str) -> None:
        """Note what could not be collected."""
        self.missing.append(_Missing(what, why))

    def members(self, about: dict[str, object]) -> dict[str, bytes]:
        """The files by path; the manifest is first."""
        found = {path: _json(value) for path, value in self.values.items()}
        found |= {path: text.encode(errors="replace") for path, text in self.logs.items()}
        manifest = {
            **about,
            "files": [{"path": path, "bytes": len(octets)} for path, octets in found.items()],
            "missing": [{"what": one.what, "why": one.why} for one in self.missing],
        }
        return {MANIFEST: _json(manifest), **found}

    def summary(self) -> list[tuple[str, int, int, int]]:
        """Each file or folder at the top: how many files, entries of their lists, lines of logs."""
        found: dict[str, tuple[int, int, int]] = {}

        def count(path: str, n_entries: int, n_lines: int) -> None:
            first, slash, _ = path.partition("/")
            so_far = found.get(first + slash, (0, 0, 0))
            found[first + slash] = (so_far[0] + 1, so_far[1] + n_entries, so_far[2] + n_lines)

        for path, value in self.values.items():
            is_list = isinstance(value, list)
            count(path, len(cast("list[object]", value)) if is_list else 0, 0)
        for path, text in self.logs.items():
            count(path, 0, len(text.splitlines()))
        return [(top, *counts) for top, counts in found.items()]


def write_archive(members: dict[str, bytes], file: IO[bytes]) -> None:
    """Write a gzip-compressed tar archive."""
    with tarfile.open(fileobj=file, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        for path, octets in members.items():
            member = tarfile.TarInfo(f"{FOLDER}/{path}")
            member.size = len(octets)
            archive.addfile(member, io.BytesIO(octets))


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode(errors="replace")
