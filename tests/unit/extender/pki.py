"""Certificates made on the spot, for the tests of TLS."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from extender.http.tls import TlsFiles

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

HOST = "coterie.test"
"""The one name that the certificates hold."""
BOTH_SIDES = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
"""What a replica's certificate is for: it serves, and calls other replicas."""


@dataclass(frozen=True)
class Authority:
    """A certificate authority."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


def _sign(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    signer: ec.EllipticCurvePrivateKey,
    *,
    is_authority: bool = False,
    hosts: Sequence[str] = (),
    usages: Sequence[x509.ObjectIdentifier] = (),
) -> x509.Certificate:
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    if is_authority:
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        builder = builder.add_extension(usage, critical=True)
    else:
        names = x509.SubjectAlternativeName([_host(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    return builder.sign(signer, hashes.SHA256())


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def authority(name: str = "test authority") -> Authority:
    """Make an authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    return Authority(key, _sign(name, key, subject, key, is_authority=True))


def issue(
    folder: Path,
    by: Authority,
    name: str = HOST,
    *,
    hosts: Sequence[str] = (HOST,),
    usages: Sequence[x509.ObjectIdentifier] = BOTH_SIDES,
) -> TlsFiles:
    """Write a certificate, its key and its authority's certificate into the folder."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = by.certificate.subject
    certificate = _sign(name, key, issuer, by.key, hosts=hosts, usages=usages)
    folder.mkdir(parents=True, exist_ok=True)
    files = TlsFiles(folder / "tls.crt", folder / "tls.key", folder / "ca.crt")
    pem = serialization.Encoding.PEM
    files.cert.write_bytes(certificate.public_bytes(pem))
    files.key.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    files.client_ca.write_bytes(by.certificate.public_bytes(pem))
    return files
