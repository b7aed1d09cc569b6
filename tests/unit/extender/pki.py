"""Certificates made on the spot, where the extender's settings look for them."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from cryptography.x509.oid import ExtendedKeyUsageOID

from extender.http.tls import TlsFiles
from tests.cluster.control.credentials import Authority

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cryptography import x509

HOST = "coterie.test"
"""The one name that the certificates hold."""
BOTH_SIDES = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
"""One certificate that does for either side."""


def authority(name: str = "test authority") -> Authority:
    """Make an authority."""
    return Authority(name)


def issue(
    folder: Path,
    by: Authority,
    *,
    hosts: Sequence[str] = (HOST,),
    usages: Sequence[x509.ObjectIdentifier] = BOTH_SIDES,
) -> TlsFiles:
    """Write a certificate, its key and its authority's certificate into the folder."""
    pair = by.issue(hosts, usages)
    folder.mkdir(parents=True, exist_ok=True)
    files = TlsFiles(folder / "tls.crt", folder / "tls.key", folder / "ca.crt")
    files.cert.write_bytes(pair.certificate)
    files.key.write_bytes(pair.key)
    files.client_ca.write_bytes(by.certificate)
    return files


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """The context of a client that shows this certificate."""
    context = ssl.create_default_context(cafile=str(files.client_ca))
    context.load_cert_chain(files.cert, files.key)
    return context
