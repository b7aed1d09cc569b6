"""TLS of a client that calls programs which may die at any moment.

Leaves no socket open. CPython does where the peer resets a connection between connect and handshake
(3.11.7, `ssl.SSLSocket._create`: what its `recv` raises there is passed on as it is), and the
warning about it would fail whichever test runs next.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["client_context"]


class _ClosedByReset(ssl.SSLSocket):
    """A socket that is closed once its peer has reset the connection."""

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        try:
            return super().recv(buflen, flags)
        except ConnectionResetError:
            self.close()
            raise


def client_context(folder: Path, name: str) -> ssl.SSLContext:
    """Trust the authority of `ca.crt`, and be who has the certificate of that name."""
    context = ssl.create_default_context(cafile=folder / "ca.crt")
    context.load_cert_chain(folder / f"{name}.crt", folder / f"{name}.key")
    context.sslsocket_class = _ClosedByReset
    return context
