"""Replaces what identifies a machine or its users, before it is written to a support bundle.

Pure. Method:

- A UUID becomes `00000000-0000-8000-8000-<number>`, numbered from 1 in the order of appearance, the
  same one everywhere in the bundle, in text and in binary. Version 8 is free for such uses (RFC
  9562, section 5.8), so that no GPU has such a UUID, and one that is there already stays.
  Prefixes (`GPU-`, `MIG-`) stay, and so does the UUID of zeros, which stands for none. Lengths do
  not change.
- A host's name becomes `host`.
- In lines `key : value` the values of keys that the vendor calls identifying become `removed`, and
  in all lines an account with its host: drivers name those that built them (`root@gpu-7`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["Redaction"]

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_ACCOUNT = re.compile(r"[\w.+-]+@[\w.-]+")
_UUID_BYTES = 16
_PSEUDONYM = UUID("00000000-0000-8000-8000-000000000000")
_NUMBER = (1 << 48) - 1
_ABSENT = frozenset({"N/A", "[N/A]", "None", "0"})
"""Values that identify nothing."""


class Redaction:
    """The replacements of one bundle; none where `keeps` is set."""

    def __init__(
        self,
        *,
        keeps: bool = False,
        host_names: Iterable[str] = (),
        identifying_keys: str = r"(?!)",
    ) -> None:
        """`identifying_keys` is a pattern of whole keys, without regard to case."""
        self.keeps = keeps
        self._pseudonyms: dict[UUID, UUID] = {}
        names = sorted({name for name in host_names if name}, key=lambda name: (-len(name), name))
        alternatives = "|".join(map(re.escape, names)) or r"(?!)"
        self._hosts = re.compile(rf"(?<![\w.-])(?:{alternatives})(?![\w-])")
        self._secrets = re.compile(
            rf"^([^\S\n]*(?:{identifying_keys})[^\S\n]*:[^\S\n]*)(\S[^\n]*)$",
            re.IGNORECASE | re.MULTILINE,
        )

    def text(self, text: str) -> str:
        """A text without UUIDs and host names.

        >>> Redaction().text("GPU-6d1c4a90-0f0e-4f3b-9d2a-3c1f5a7b9e01")
        'GPU-00000000-0000-8000-8000-000000000001'
        """
        if self.keeps:
            return text
        return self._hosts.sub("host", self._renamed(text))

    def lines(self, text: str) -> str:
        """A text of lines, without the values of secret keys and accounts too.

        >>> Redaction(identifying_keys="serial number").lines("Serial Number : 1320")
        'Serial Number : removed'
        """
        if self.keeps:
            return text
        return self.text(_ACCOUNT.sub("removed", self._secrets.sub(_removed, text)))

    def value(self, value: object) -> object:
        """A JSON value, its strings without UUIDs and host names; keys too."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            items = cast("Mapping[str, object]", value)
            return {self.text(key): self.value(one) for key, one in items.items()}
        if isinstance(value, list | tuple):
            return [self.value(one) for one in cast("Sequence[object]", value)]
        return value

    def octets(self, octets: bytes, uuids: Iterable[int] = ()) -> bytes:
        """Bytes without UUIDs in text, and in binary at the offsets `uuids`; as many bytes."""
        if self.keeps:
            return octets
        found = bytearray(self._renamed(octets.decode("latin-1")).encode("latin-1"))
        for start in uuids:
            binary = bytes(octets[start : start + _UUID_BYTES])
            found[start : start + _UUID_BYTES] = self._pseudonym(UUID(bytes=binary)).bytes
        return bytes(found)

    def _renamed(self, text: str) -> str:
        return _UUID.sub(lambda found: str(self._pseudonym(UUID(found[0]))), text)

    def _pseudonym(self, uuid: UUID) -> UUID:
        if not uuid.int or uuid.int & ~_NUMBER == _PSEUDONYM.int:
            return uuid
        number = len(self._pseudonyms) + 1
        return self._pseudonyms.setdefault(uuid, UUID(int=_PSEUDONYM.int | number))


def _removed(found: re.Match[str]) -> str:
    return found[0] if found[2].strip() in _ABSENT else f"{found[1]}removed"
