"""The TLS context of the server, which follows its files.

Both sides show a certificate (the wire has no other authentication), TLS 1.2 or later. When one of
the files has changed, handshakes from then on use the new ones, certificate authority included;
open connections are kept. A set of files that does not fit together (half of a rotation) changes
nothing and is tried again. A key's content is never logged or kept.
"""

from __future__ import annotations

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
    """The server's context, made of the files as they last were usable."""

    def __init__(self, files: TlsFiles) -> None:
        """Read the files. Raises `SettingsError` where they cannot be used."""
        self._files = files
        self._stamp: object = None
        self._current = self._read()
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
        self._current = self._read()
        return True

    def _read(self) -> ssl.SSLContext:
        stamp = self._look()
        context = _server_context(self._files)
        self._stamp = stamp
        return context

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


def _load(context: ssl.SSLContext, files: TlsFiles) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(files.cert, files.key)
        context.load_verify_locations(files.client_ca)
    except (OSError, ValueError) as error:
        # ssl.SSLError is an OSError; its text names no content.
        shown = ", ".join(map(str, files.paths))
        why = file_fault(error)
        msg = f"settings tls_cert, tls_key, tls_client_ca ({shown}): cannot be used: {why}"
        raise SettingsError(msg) from error
    return context
