"""When a certificate ends.

Python's ssl shows the dates only of a certificate that a handshake has verified, which one that has
ended cannot be. The first certificate of a PEM text is the holder's own (RFC 8446, section 4.4.2).
Only as much of it is read as its validity needs (RFC 5280, section 4.1). It verifies nothing.
"""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime
from typing import NamedTuple

__all__ = ["certificate_end_s"]

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE = 0x30
_VERSION = 0xA0
_UTC_TIME = 0x17
_GENERALIZED_TIME = 0x18
_LONG = 0x80
"""Set in the first byte of a length that takes more than one: the others are its number."""
_PIVOT = 50
"""Two digits of a year from here on are of the 20th century (RFC 5280, section 4.1.2.5.1)."""


class _Value(NamedTuple):
    """A DER value: its tag, its content, and what follows it."""

    tag: int
    content: bytes
    rest: bytes


def certificate_end_s(pem: str) -> float | None:
    """The end of validity of the first certificate, in seconds since 1970; None if unreadable."""
    found = _PEM.search(pem)
    if found is None:
        return None
    try:
        whole = _read(ssl.PEM_cert_to_DER_cert(found[0]), _SEQUENCE)
        body = _read(whole.content, _SEQUENCE).content
        if body[0] == _VERSION:
            body = _read(body).rest
        for _ in ("serial number", "signature algorithm", "issuer"):
            body = _read(body).rest
        begin = _read(_read(body, _SEQUENCE).content)
        return _seconds(_read(begin.rest))
    except (ValueError, IndexError):
        return None


def _read(der: bytes, tag: int | None = None) -> _Value:
    """Read a value, of this tag if one is given. Raises `ValueError` and `IndexError`."""
    if tag is not None and der[0] != tag:
        msg = f"DER value has tag {der[0]}, expected {tag}"
        raise ValueError(msg)
    length, begin = der[1], 2
    if length & _LONG:
        begin += length & ~_LONG
        length = int.from_bytes(der[2:begin], "big")
    end = begin + length
    return _Value(der[0], der[begin:end], der[end:])


def _seconds(value: _Value) -> float:
    text = value.content.decode("ascii")
    if value.tag == _UTC_TIME:
        text = ("19" if int(text[:2]) >= _PIVOT else "20") + text
    elif value.tag != _GENERALIZED_TIME:
        msg = f"DER value has tag {value.tag}, expected a time"
        raise ValueError(msg)
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
