"""A support bundle: named texts, written as one compressed archive.

Owners, modes and times of the members are always the same: they are those of whoever records.
"""

from __future__ import annotations

import io
import json
import tarfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import IO

    from plugin.record.redaction import Redaction

__all__ = ["FOLDER", "Bundle"]

FOLDER = "coterie-record"
"""The folder of all members, so that unpacking makes one entry."""


@dataclass
class Bundle:
    """What was recorded so far: texts by their path in the archive, already redacted.

    `notes` say what could not be recorded, and why, for people.
    """

    redaction: Redaction
    members: dict[str, str] = field(default_factory=dict[str, str])
    notes: list[str] = field(default_factory=list[str])

    def add_json(self, name: str, value: object) -> None:
        """Add a JSON value, its strings redacted."""
        self.members[name] = json.dumps(self.redaction.value(value), indent=2) + "\n"

    def add_lines(self, name: str, text: str) -> None:
        """Add a program's output or a file, secret lines redacted."""
        self.members[name] = self.redaction.lines(text)

    def note(self, text: str) -> None:
        """Say what could not be recorded."""
        self.notes.append(self.redaction.text(text))

    def write(self, file: IO[bytes]) -> None:
        """Write a gzip-compressed tar archive."""
        with tarfile.open(fileobj=file, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
            for name, text in self.members.items():
                octets = text.encode("utf-8", errors="replace")
                member = tarfile.TarInfo(f"{FOLDER}/{name}")
                member.size = len(octets)
                archive.addfile(member, io.BytesIO(octets))
