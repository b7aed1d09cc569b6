"""JSON objects and their fields."""

from __future__ import annotations

import json

import pytest

from kube.errors import Unreadable
from kube.fields import (
    as_object,
    encode_object,
    list_at,
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
    ("read", "value", "message"),
    [
        (object_at, [], "key is [], expected an object"),
        (list_at, {}, "key is {}, expected a list"),
        (text_at, 7, "key is 7, expected a string"),
        (whole_at, "7", "key is '7', expected a whole number"),
        (whole_at, True, "key is True, expected a whole number"),
        (texts_at, {"a": 1}, "key['a'] is 1, expected a string"),
        (lambda p, k: list(objects_at(p, k)), [7], "key[] is 7, expected an object"),
    ],
)
def test_another_type_is_told(read, value, message):
    """The message names the field, what stands there and what is needed."""
    with pytest.raises(Unreadable) as caught:
        read({"key": value}, "key")
    assert str(caught.value) == message


def test_a_text_must_be_one_object():
    """Anything else is no object of the API."""
    assert parse_object(b'{"a":1}') == {"a": 1}
    assert as_object({}, "it") == {}
    for text in (b"", b"[]", b"{", b"\xff", b'{"a":' * 100_000):
        with pytest.raises(Unreadable, match="body is"):
            parse_object(text)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({"a": [1, -0.5, None, True, {"é": "x\n"}], "b": 10**30}, id="any value"),
        pytest.param({"a": float("inf")}, id="what JSON has no word for"),
        pytest.param({"a": "\ud800"}, id="half a character"),
    ],
)
def test_texts_are_read_and_written_as_by_the_standard_library(value):
    """Also what is no good JSON and the faster reader and writer refuse."""
    assert parse_object(json.dumps(value)) == value
    assert parse_object(json.dumps(value).encode()) == value
    assert json.loads(encode_object(value)) == value


def test_objects_nest_as_deep_as_ever():
    """Deeper than the faster reader goes."""
    depth = 500
    value = parse_object(b'{"a":' * depth + b"1" + b"}" * depth)
    for _ in range(depth - 1):
        value = object_at(value, "a")
    assert value == {"a": 1}
