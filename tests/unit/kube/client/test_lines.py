"""Lines out of chunks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.client.lines import LineSplitter
from kube.errors import Malformed


def split(chunks):
    """All lines of the chunks, and the rest."""
    splitter = LineSplitter()
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    return lines, splitter.rest()


LINES = st.lists(st.binary(min_size=1, max_size=40).filter(lambda b: b"\n" not in b and b.strip()))


@given(LINES, st.data())
def test_lines_are_the_same_wherever_the_stream_is_cut(lines, data):
    """Chunks end where the network wants them to, in the middle of a character even."""
    stream = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert split(chunks) == (lines, b"")


def test_every_single_cut_gives_the_same_lines():
    """Once for each byte, so that no place is left to chance."""
    stream = '{"a":"é"}\n\n{"b":2}\r\n{"c"'.encode()
    for cut in range(len(stream) + 1):
        lines, rest = split([stream[:cut], stream[cut:]])
        assert ([line.strip() for line in lines], rest) == (
            ['{"a":"é"}'.encode(), b'{"b":2}'],
            b'{"c"',
        )


def test_a_line_may_be_as_long_as_an_object():
    """A Node with its images and topology is longer than a stream reader's own limit (64 KiB)."""
    line = b"x" * 2_000_000
    chunks = [line[i : i + 65_536] for i in range(0, len(line), 65_536)]
    assert split([*chunks, b"\n"]) == ([line], b"")


def test_a_line_without_an_end_is_refused(check_message):
    """A server that never ends a line must not fill the memory."""
    splitter = LineSplitter(max_bytes=10)
    assert splitter.feed(b"x" * 10 + b"\n" + b"y" * 10) == [b"x" * 10]
    with pytest.raises(Malformed) as caught:
        splitter.feed(b"y")
    check_message(caught.value)
