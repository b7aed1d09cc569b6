"""Pages of lists and lines of watches."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.client import Page, read_event
from kube.errors import Gone, KubeError, Malformed

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
ITEMS = st.lists(st.dictionaries(st.text(max_size=4), JSON_VALUES, max_size=3), max_size=5)


@given(ITEMS, st.sampled_from([None, 1]), st.permutations(["kind", "metadata", "items"]))
def test_a_page_read_by_items_is_the_page_read_at_once(items, indent, order):
    """However it is written: with blanks, and in any order of its fields."""
    whole = {
        "kind": "NodeList",
        "metadata": {"resourceVersion": "7", "continue": "next"},
        "items": items,
    }
    text = json.dumps({key: whole[key] for key in order}, indent=indent)
    page = Page(text.encode())
    assert list(page) == items
    assert (page.resource_version, page.continue_token) == ("7", "next")


@given(ITEMS, st.data())
def test_no_part_of_a_page_passes_for_the_page(items, data):
    """An answer that was cut must never become a list that lacks objects."""
    text = json.dumps({"items": items, "metadata": {"resourceVersion": "7"}}).encode()
    cut = data.draw(st.integers(0, len(text) - 1))
    with pytest.raises(Malformed):
        list(Page(text[:cut]))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"{}",
        b'{"items":[]}',
        b'{"metadata":{"resourceVersion":""},"items":[]}',
        b'{"metadata":{"resourceVersion":7},"items":[]}',
        b'{"metadata":7,"items":[]}',
        b'{"metadata":{"resourceVersion":"7"},"items":[7]}',
        b'{"metadata":{"resourceVersion":"7"},"items"}',
        b'{"metadata":{"resourceVersion":"7"},"items":[' + b'{"a":' * 100_000,
        b"<html>",
    ],
)
def test_what_is_no_list_is_malformed(body):
    """A page without a resourceVersion could not be followed by a watch."""
    with pytest.raises(Malformed):
        list(Page(body))


def test_a_list_of_nothing_may_be_null():
    """Go writes an empty list as null where it was never set."""
    page = Page(b'{"metadata":{"resourceVersion":"7"},"items":null}')
    assert (list(page), page.resource_version) == ([], "7")


def event(kind, **meta):
    """One line of a watch."""
    return json.dumps({"type": kind, "object": {"metadata": meta}}).encode()


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"])
def test_a_line_is_one_event(kind):
    """The four kinds that carry an object, and its version."""
    read = read_event(event(kind, name="n1", resourceVersion="8"))
    assert (read.kind, read.resource_version) == (kind, "8")
    assert read.content == {"metadata": {"name": "n1", "resourceVersion": "8"}}


def test_an_error_in_the_stream_is_raised():
    """The server ends a watch in the stream, since the HTTP status is sent already."""
    line = {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}
    with pytest.raises(Gone, match="410 Expired: too old"):
        read_event(json.dumps(line).encode())
    line["object"] = {"code": 500}
    with pytest.raises(KubeError) as caught:
        read_event(json.dumps(line).encode())
    assert caught.value.status == 500


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"7",
        b"\xff",
        b"{}",
        b'{"type":"ADDED"}',
        b'{"type":"ADDED","object":7}',
        b'{"type":7,"object":{}}',
        event("ADDED"),
        event("RENAMED", resourceVersion="8"),
        event("ADDED", resourceVersion=8),
    ],
)
def test_what_is_no_event_is_malformed(line):
    """After an unknown line the state of the stream is no longer known."""
    with pytest.raises(Malformed):
        read_event(line)
