"""Replaces names that people chose, every UUID and every IP address by keyed hashes.

Method: names are learned first, from all that was collected. Then each word of a text that is a
learned name becomes `kind-hash`; a word with dots is looked at piece by piece, as names of Events
and of hosts are made (`gpu-07.example.com`), and one that begins with a name and a dash by that
name (`train-0-rank1`). Of a host's name with dots its first piece and its domains are learned too.
The hash is HMAC-SHA-256 under a key of this bundle
alone, so that a name has the same hash everywhere in it and another one in the next bundle. A UUID
becomes one of version 8, which is free for such uses (RFC 9562, section 5.8); the UUID of zeros
stays. JSON is taken apart first, also where it is the text of an annotation or a line of a log.

A name of digits alone is replaced only where it is a whole value: as a word it would be every
number. Names that are the same on all clusters stay (`kept_words`).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from ipaddress import ip_address
from typing import TYPE_CHECKING, cast
from uuid import UUID

from kubectl_coterie.bundle.kept_words import KEPT, is_public_host

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["NameHashes"]

_UUID = re.compile(
    r"(?<![0-9a-f])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9a-f])", re.IGNORECASE
)
_WORD = re.compile(r"\\[nrt\"\\]|[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")
"""An escape sequence, which is no part of the word behind it, or a word (RFC 1123 and dots)."""
_ADDRESS = re.compile(
    r"(?<![0-9A-Za-z.])[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![0-9A-Za-z]|\.[0-9])"
    r"|(?<![0-9A-Za-z:.])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?![0-9A-Za-z:])"
)
"""What may be an address of IP version 4 or 6."""
_NAMES_AS_KEYS = frozenset(
    {"allocatable", "annotations", "capacity", "labels", "limits", "nodeSelector", "requests"}
)
"""Fields whose own keys are names of labels and resources."""
_HOSTS = frozenset({"host", "node", "registry"})
_SHORTEST = 4
"""Of a name that is replaced where it only begins a word."""
_DIGITS = 10
_VERSION_8 = (0x8 << 76, ~(0xF << 76))
_VARIANT = (0x2 << 62, ~(0x3 << 62))


class NameHashes:
    """The replacements of one bundle."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._names: dict[str, str] = {}
        self._phrases: re.Pattern[str] | None = None

    def learn(self, kind: str, name: str) -> None:
        """Take a name; where it is known already its first kind stays."""
        if not name or name in KEPT or _UUID.fullmatch(name):
            return
        self._phrases = None
        code = self._names.setdefault(name, self._code(kind, name))
        pieces = name.split(".")
        if kind not in _HOSTS or name.replace(".", "").isdigit():
            return
        if kind == "node" and pieces[0] not in KEPT:
            self._names.setdefault(pieces[0], code)
        for k in range(1, len(pieces) - 1):
            domain = ".".join(pieces[k:])
            if not is_public_host(domain):
                self._names.setdefault(domain, self._code("domain", domain))

    def text(self, text: str) -> str:
        """A text without learned names and UUIDs.

        >>> hashes = NameHashes(b"key")
        >>> hashes.learn("node", "gpu-07")
        >>> hashes.text("gpu-07.example.com, gpu-071")
        'node-824312b76e.example.com, gpu-071'
        """
        text = self._phrase_pattern().sub(self._phrase, _UUID.sub(self._uuid, text))
        return _WORD.sub(self._word, _ADDRESS.sub(self._address, text))

    def lines(self, text: str) -> str:
        """A log: lines of JSON by their values, others as text."""
        return "\n".join(self._line(line) for line in text.split("\n"))

    def value(self, value: object) -> object:
        """A JSON value, its strings and keys without them."""
        if isinstance(value, str):
            return self._names.get(value) or self._nested(value)
        if isinstance(value, dict):
            items = cast("Mapping[str, object]", value)
            return {
                self._key_of(key): self._keyed(one) if key in _NAMES_AS_KEYS else self.value(one)
                for key, one in items.items()
            }
        if isinstance(value, list | tuple):
            return [self.value(one) for one in cast("Sequence[object]", value)]
        return value

    def _keyed(self, value: object) -> object:
        """The same, where keys are names."""
        found = self.value(value)
        if not isinstance(found, dict):
            return found
        fields = cast("Mapping[str, object]", found)
        return {self._names.get(key, key): one for key, one in fields.items()}

    def _phrase_pattern(self) -> re.Pattern[str]:
        """Learned names that are no words, such as those with `_` and `@`, the longest first."""
        if self._phrases is None:
            odd = sorted((one for one in self._names if not _WORD.fullmatch(one)), key=len)
            either = "|".join(re.escape(one) for one in reversed(odd)) or "(?!)"
            self._phrases = re.compile(rf"(?<![A-Za-z0-9])(?:{either})(?![A-Za-z0-9])")
        return self._phrases

    def _phrase(self, found: re.Match[str]) -> str:
        return self._names[found[0]]

    def _line(self, line: str) -> str:
        found = _parsed(line)
        return self.text(line) if found is None else json.dumps(self.value(found))

    def _nested(self, text: str) -> str:
        found = _parsed(text)
        if found is None:
            return self.text(text)
        return json.dumps(self.value(found), separators=(",", ":"))

    def _key_of(self, key: str) -> str:
        """Keys are names of fields, unless one is a learned path or UUID."""
        return self.text(key) if "/" in key or _UUID.search(key) else key

    def _word(self, found: re.Match[str]) -> str:
        return self._replaced(found[0])

    def _replaced(self, word: str) -> str:
        if word.isdigit():
            return word
        pieces = word.split(".")
        for n in range(len(pieces), 0, -1):
            name = self._names.get(".".join(pieces[:n]))
            if name is not None:
                rest = ".".join(pieces[n:])
                return f"{name}.{self._replaced(rest)}" if rest else name
        first, dot, rest = word.partition(".")
        shown = self._begun(first)
        return f"{shown}.{self._replaced(rest)}" if dot and rest else shown

    def _begun(self, word: str) -> str:
        """A word that begins with a learned name and a dash."""
        end = word.rfind("-")
        while end >= _SHORTEST:
            name = self._names.get(word[:end])
            if name is not None:
                return name + word[end:]
            end = word.rfind("-", 0, end)
        return word

    def _address(self, found: re.Match[str]) -> str:
        try:
            address = ip_address(found[0])
        except ValueError:
            return found[0]
        if address.is_loopback or address.is_unspecified:
            return found[0]
        return self._names.get(found[0]) or self._code("ip", str(address))

    def _code(self, kind: str, name: str) -> str:
        return f"{kind}-{self._hash(name).hex()[:_DIGITS]}"

    def _uuid(self, found: re.Match[str]) -> str:
        uuid = UUID(found[0])
        if not uuid.int:
            return found[0]
        number = int.from_bytes(self._hash(str(uuid))[:16], "big")
        for bits, mask in (_VERSION_8, _VARIANT):
            number = number & mask | bits
        return str(UUID(int=number))

    def _hash(self, name: str) -> bytes:
        return hmac.new(self._key, name.encode(), hashlib.sha256).digest()


def _parsed(text: str) -> object | None:
    """The object or list that a text is in JSON; None where it is none."""
    if not text.startswith(("{", "[")):
        return None
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found
