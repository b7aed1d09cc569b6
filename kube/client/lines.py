"""Lines out of a stream of bytes that is cut anywhere.

Returns the complete lines that a chunk ends. A watch sends one JSON object per line, and a Node
with its topology is longer than what stream readers allow for a line, so that lines are cut here.
Linear in the bytes, however they arrive.
"""

from __future__ import annotations

from kube.errors import Malformed

__all__ = ["LineSplitter"]

_MAX_LINE_BYTES = 16 * 1024 * 1024
"""No object is longer: etcd takes 1.5 MiB a request (--max-request-bytes), and JSON is less than
ten times what is stored."""


class LineSplitter:
    r"""Keeps what has no end yet.

    >>> splitter = LineSplitter()
    >>> splitter.feed(b'{"a"'), splitter.feed(b":1}\n{}\n{"), splitter.rest()
    ([], [b'{"a":1}', b'{}'], b'{')
    """

    def __init__(self, *, max_bytes: int = _MAX_LINE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._n_bytes = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes, return the lines that they end, without line ends or empty lines.

        Raises `Malformed` when a line gets longer than `max_bytes`.
        """
        *ended, rest = chunk.split(b"\n")
        if ended:
            ended[0] = b"".join((*self._parts, ended[0]))
            self._parts.clear()
            self._n_bytes = 0
        if rest:
            self._parts.append(rest)
            self._n_bytes += len(rest)
            if self._n_bytes > self._max_bytes:
                msg = f"a line of more than {self._max_bytes} bytes, expected one object"
                raise Malformed(0, "TooLong", msg)
        return [line for line in ended if line.strip()]

    def rest(self) -> bytes:
        """What came after the last line end; empty if the stream ended with one."""
        return b"".join(self._parts).strip()
