"""When certificates end, whatever is in them and however they are written."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from kube.client import Transport, certificate_end_s
from tests.cluster.control.credentials import Authority, kubeconfig

KEY = ec.generate_private_key(ec.SECP256R1())
BEGIN = dt.datetime(1960, 1, 1, tzinfo=dt.UTC)


def certificate(end: dt.datetime, issuer: str = "authority") -> str:
    """A certificate that ends then."""
    subject, by = (
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, one)]) for one in ("holder", issuer)
    )
    builder = x509.CertificateBuilder(by, subject, KEY.public_key(), 1, BEGIN, end)
    signed = builder.sign(KEY, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM).decode()


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(dt.datetime(1970, 1, 2, tzinfo=dt.UTC), id="of the last century"),
        pytest.param(dt.datetime(2027, 11, 23, 12, 30, 15, tzinfo=dt.UTC), id="two digits"),
        pytest.param(dt.datetime(2049, 12, 31, 23, 59, 59, tzinfo=dt.UTC), id="the last of these"),
        pytest.param(dt.datetime(2050, 1, 1, tzinfo=dt.UTC), id="four digits"),
    ],
)
@pytest.mark.parametrize("issuer", ["a", "a" * 60], ids=["short", "longer"])
def test_the_end_is_read(end, issuer):
    """From 2050 on the date is of another type."""
    assert certificate_end_s(certificate(end, issuer)) == end.timestamp()


def test_the_first_certificate_counts():
    """It is the holder's own; its authorities' follow."""
    first, second = (dt.datetime(year, 1, 1, tzinfo=dt.UTC) for year in (2030, 2040))
    text = "the leaf\n" + certificate(first) + certificate(second)
    assert certificate_end_s(text) == first.timestamp()


@given(st.text() | st.binary(max_size=60).map(base64.b64encode).map(bytes.decode))
def test_any_text_is_read_or_not(text):
    """A file that is being written, or is something else."""
    framed = f"-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n"
    assert certificate_end_s(text) is None
    assert certificate_end_s(framed) is None


@pytest.mark.parametrize("has_certificate", [True, False], ids=["certificate", "token"])
def test_the_certificate_of_a_kubeconfig_is_found(tmp_path, has_certificate):
    """On kubeadm the extender has no other credential, and nothing renews it."""
    by = Authority("cluster")
    user = by.client("coterie-extender")
    path = tmp_path / "extender.conf"
    credential = user if has_certificate else "a-token"
    text = kubeconfig("https://127.0.0.1:1", by.certificate, credential)
    path.write_text(text, encoding="utf-8")

    async def shown() -> bytes | None:
        transport = await Transport.connect(path)
        try:
            found = transport.client_certificate
            return None if found is None else found.read_bytes()
        finally:
            await transport.close()

    assert asyncio.run(shown()) == (user.certificate if has_certificate else None)
