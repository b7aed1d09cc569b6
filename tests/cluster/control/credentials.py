"""Who may speak to a test cluster: its certificate authorities, certificates and kubeconfigs.

Makes a certificate for a user and its groups or for a server and its names, and the kubeconfig that
holds it. Keys lie in the cluster's temporary folder and are removed with it.
"""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

__all__ = ["Authority", "KeyPair", "KeyPairFiles", "kubeconfig", "signing_key"]

# Both sides wide enough for tests that move a program's clock.
_BEFORE = dt.timedelta(days=1)
_AFTER = dt.timedelta(days=30)


@dataclass(frozen=True, slots=True)
class KeyPairFiles:
    """Where a certificate and its key lie."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes

    def write(self, folder: Path, name: str) -> KeyPairFiles:
        """Write `<name>.crt` and `<name>.key`."""
        files = KeyPairFiles(folder / f"{name}.crt", folder / f"{name}.key")
        files.certificate.write_bytes(self.certificate)
        files.key.write_bytes(self.key)
        files.key.chmod(0o600)
        return files


class Authority:
    """A certificate authority; `certificate` is its own, PEM."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _subject(name)
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
        own = (
            _draft(self._name, self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = own.public_bytes(serialization.Encoding.PEM)

    def client(self, user: str, groups: Iterable[str] = ()) -> KeyPair:
        """Certify a user as Kubernetes reads it: the name is the user, organisations its groups."""
        return self._issue(_subject(user, groups), (), [ExtendedKeyUsageOID.CLIENT_AUTH])

    def server(self, *hosts: str) -> KeyPair:
        """Certify a server of these names and addresses."""
        return self.issue(hosts, [ExtendedKeyUsageOID.SERVER_AUTH])

    def peer(self, *hosts: str) -> KeyPair:
        """Certify a server that is a client of its like, too."""
        return self.issue(hosts, [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])

    def issue(self, hosts: Sequence[str], usages: Sequence[x509.ObjectIdentifier]) -> KeyPair:
        """Certify whoever has these names and addresses for these usages."""
        return self._issue(_subject(hosts[0]), hosts, usages)

    def _issue(
        self, subject: x509.Name, hosts: Sequence[str], usages: Sequence[x509.ObjectIdentifier]
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        draft = (
            _draft(subject, self._name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(list(usages)), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if hosts:
            names = x509.SubjectAlternativeName([_host(host) for host in hosts])
            draft = draft.add_extension(names, critical=False)
        certificate = draft.sign(self._key, hashes.SHA256())
        return KeyPair(certificate.public_bytes(serialization.Encoding.PEM), _pem(key))


def signing_key() -> bytes:
    """Make the key that signs service accounts' tokens, PEM."""
    return _pem(ec.generate_private_key(ec.SECP256R1()))


def kubeconfig(server: str, authority: bytes, user: KeyPair | str) -> str:
    """Make a kubeconfig for a certificate or a token; everything inline, so one file is enough."""
    credentials = (
        {"token": user}
        if isinstance(user, str)
        else {
            "client-certificate-data": _base64(user.certificate),
            "client-key-data": _base64(user.key),
        }
    )
    cluster = {"server": server, "certificate-authority-data": _base64(authority)}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": credentials}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }
    return json.dumps(content, indent=2)


def _subject(name: str, organisations: Iterable[str] = ()) -> x509.Name:
    groups = (x509.NameAttribute(NameOID.ORGANIZATION_NAME, one) for one in organisations)
    return x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _draft(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + _AFTER)
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,  # the API server reads no PKCS 8 here
        serialization.NoEncryption(),
    )


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
