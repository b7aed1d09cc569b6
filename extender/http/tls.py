"""The TLS contexts of the server and of calls to other replicas, which follow their files.

Both sides show a certificate (the wire has no other authentication), TLS 1.2 or later. When one of
the files has changed, handshakes from then on use the new ones, certificate authority included;
open connections are kept. A set of files that does not fit together (half of a rotation) changes
nothing and is tried again. A key's content is never logged or kept.
"""

from __future__ import annotations

import contextlib
import ssl
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

from kube.errors import SettingsError
from topology.errors import file_fault

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Certificates", "TlsFiles"]


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: the certificate with its chain, its key, the authority of the other side's."""

    cert: Path
    key: Path
    client_ca: Path

    @property
    def paths(self) -> tuple[Path, ...]:
        """All of them."""
        return astuple(self)


class Certificates:
    """The contexts made of the files as they last were usable."""

    def __init__(self, files: TlsFiles, *, peer_name: str | None = None) -> None:
        """Read the files. Raises `SettingsError` where they cannot be used.

        With `peer_name` they must do for calls between replicas that go by this name: the same
        certificate is then shown on both sides.
        """
        self._files = files
        self._peer_name = peer_name
        self._stamp: object = None
        self._current, self.client = self._read()
        self.server = _server_context(files)
        # What a handshake uses is looked up when it begins; the outer context only sets the rules.
        self.server.sni_callback = self._use_current

    def reload(self) -> bool:
        """Use the files as they are now; True if they had changed.

        Raises `SettingsError` where they cannot be used: the old ones stay in use, and the next
        call tries again.
        """
        if self._stamp == self._look():
            return False
        self._current, self.client = self._read()
        return True

    def _read(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        try:
            stamp = self._look()
            contexts = _server_context(self._files), _client_context(self._files)
            if self._peer_name is not None:
                _rehearse(*contexts, self._peer_name)
        except (OSError, ValueError) as error:
            # ssl.SSLError is an OSError; its text names no content.
            shown = ", ".join(map(str, self._files.paths))
            why = file_fault(error)
            msg = f"settings tls_cert, tls_key, tls_client_ca ({shown}): cannot be used: {why}"
            raise SettingsError(msg) from error
        self._stamp = stamp
        return contexts

    def _look(self) -> object:
        """What differs once a file was replaced; None while one is missing."""
        try:
            found = [path.stat() for path in self._files.paths]
        except OSError:
            return None
        return [(one.st_mtime_ns, one.st_size, one.st_ino) for one in found]

    def _use_current(
        self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _outer: ssl.SSLContext
    ) -> None:
        connection.context = self._current


def _server_context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    # No resumption: a client that reconnects presents its certificate again, checked by the current
    # CA.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    return _load(context, files)


def _client_context(files: TlsFiles) -> ssl.SSLContext:
    return _load(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), files)


def _load(context: ssl.SSLContext, files: TlsFiles) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(files.cert, files.key)
    context.load_verify_locations(files.client_ca)
    return context


def _rehearse(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    """Handshake with ourselves, in memory. Raises `ssl.SSLError` where a peer would refuse.

    A certificate for servers alone, or without the name, would show only when a bind is forwarded.
    """
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(back, there, server_hostname=name),
        server.wrap_bio(there, back, server_side=True),
    )
    waiting = list(ends)
    while waiting:
        for end in tuple(waiting):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
                waiting.remove(end)
