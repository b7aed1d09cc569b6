"""Fields of JSON objects."""

from __future__ import annotations

import pytest

from topology.errors import Unreadable
from topology.model import (
    LinkKind,
    as_object,
    choice_at,
    list_at,
    needed_at,
    object_at,
    objects_at,
    parse_object,
    text_at,
    texts_at,
    whole_at,
)


@pytest.mark.parametrize(
    ("read", "value", "empty"),
    [
        (object_at, {"a": 1}, {}),
        (list_at, [1], ()),
        (text_at, "x", ""),
        (whole_at, 7, 0),
        (texts_at, {"a": "b"}, {}),
        (lambda parent, key: list(objects_at(parent, key)), [{"a": 1}], []),
    ],
)
def test_absent_and_null_are_empty(read, value, empty):
    """The API server leaves out what is empty, and other writers say null."""
    assert read({"key": value}, "key") == value
    assert read({"key": None}, "key") == empty
    assert read({}, "key") == empty


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (object_at, []),
        (list_at, {}),
        (text_at, 7),
        (text_at, "\ud800"),
        (needed_at, ""),
        (lambda p, k: choice_at(p, k, LinkKind), "rope"),
        (whole_at, "7"),
        (whole_at, True),
        (texts_at, {"a": 1}),
        (lambda p, k: list(objects_at(p, k)), [7]),
    ],
)
def test_another_type_is_reported(read, value, check_message):
    """The message names the field, what stands there and what is needed."""
    with pytest.raises(Unreadable) as caught:
        read({"key": value}, "key")
    check_message(caught.value)


def test_a_text_must_be_one_object():
    """Anything else is no object of the API."""
    assert parse_object(b'{"a":1}') == {"a": 1}
    assert as_object({}, "it") == {}
    for text in (b"", b"[]", b"{", b"\xff", b'{"a":' * 100_000):
        with pytest.raises(Unreadable, match="body is"):
            parse_object(text)
