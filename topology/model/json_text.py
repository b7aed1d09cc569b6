"""The strict JSON under every annotation, and objects of the API: text -> members, and back.

What it answers: the root of a text as a `Field`, or one sentence about what is wrong with it. It
must never guess, and never spend more than the text's length on it: anyone who may write a Node or
a Pod can put anything there.

Refused: more than `_MAX_TEXT_BYTES`, a lone surrogate, a key given twice, NaN and infinities,
integers beyond int64, nesting deeper than the interpreter follows. What the members mean is the
caller's (`topology.model.codec`, `topology.annotations.plan`,
`topology.annotations.devices_report`).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, NoReturn, TypeVar

from topology.errors import CodecError, InvalidTopology, Unreadable, quote
from topology.model import names
from topology.model.fields import Field, as_object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["check_version", "parse_object", "read_text", "write_text"]

_MAX_TEXT_BYTES = 256 * 1024
"""Largest text, in UTF-8 bytes: all annotations of an object together may hold no more
(TotalAnnotationSizeLimitB, apimachinery pkg/api/validation/objectmeta.go)."""

_VERSION = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})")

T = TypeVar("T")


def read_text(text: str, title: str, read: Callable[[Field], T]) -> T:
    """Read the text's root with `read`, which may raise `CodecError` or `InvalidTopology`.

    Raises `CodecError`, opening with the title, and nothing else.

    >>> read_text('{"n":7}', "example", lambda root: root.need("n").integer())
    7
    """
    try:
        return read(Field(_parse(text), "", CodecError))
    except (CodecError, InvalidTopology) as error:
        msg = f"{title}: {error}"
        raise CodecError(msg) from error


def parse_object(text: str | bytes) -> Mapping[str, object]:
    """Read a JSON text that is one object of the Kubernetes API, of any size. Raises `Unreadable`.

    >>> parse_object(b'{"kind":"Pod"}')
    {'kind': 'Pod'}
    """
    try:
        return as_object(json.loads(text), "body")
    except (ValueError, RecursionError) as error:
        msg = f"body is {quote(text[:100])}, expected JSON: {error}"
        raise Unreadable(msg) from error


def write_text(body: object, title: str) -> str:
    """Write a body as compact JSON.

    Raises `CodecError`, opening with the title, where no annotation could hold the text.
    """
    text = json.dumps(body, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    try:
        _check_size(text)
    except CodecError as error:
        msg = f"{title}: {error}"
        raise CodecError(msg) from error
    return text


def check_version(field: Field) -> None:
    """Refuse a version that is not "major.minor" of the major version that this program reads."""
    match = _VERSION.fullmatch(field.text())
    if match is None:
        field.fail('"<major>.<minor>"')
    if int(match[1]) != names.SCHEMA_MAJOR:
        field.fail(f"major version {names.SCHEMA_MAJOR}")


def _check_size(text: str) -> None:
    try:
        # Counting characters first keeps a hostile text from being copied.
        n_bytes = len(text) if len(text) > _MAX_TEXT_BYTES else len(text.encode())
    except UnicodeEncodeError as error:
        msg = f"lone surrogate at character {error.start}, expected UTF-8"
        raise CodecError(msg) from error
    if n_bytes > _MAX_TEXT_BYTES:
        msg = f"at least {n_bytes} bytes, expected at most {_MAX_TEXT_BYTES}"
        raise CodecError(msg)


def _parse(text: str) -> object:
    _check_size(text)
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        msg = f"{quote(text)} is no JSON ({error.msg} at character {error.pos})"
        raise CodecError(msg) from error
    except RecursionError as error:
        msg = f"{quote(text)} is nested too deeply, expected an object of a few levels"
        raise CodecError(msg) from error


def _object_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        ((key, _),) = Counter(key for key, _ in pairs).most_common(1)
        msg = f"key {quote(key)} is given twice, expected once"
        raise CodecError(msg)
    return members


def _bounded_int(digits: str) -> int:
    if len(digits) > 20:  # noqa: PLR2004 - longer than any int64; Field.integer checks the rest
        msg = f"number {quote(digits)} is too large, expected an int64"
        raise CodecError(msg)
    return int(digits)


def _no_constant(name: str) -> NoReturn:
    msg = f"number {name} is not finite, expected a finite number"
    raise CodecError(msg)


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object_once, parse_int=_bounded_int, parse_constant=_no_constant
)
"""One for all texts: making it costs more than a plan's text."""
