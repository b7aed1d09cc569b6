"""TLS contexts that follow their files, spoken over memory: no socket, no wait."""

from __future__ import annotations

import os
import ssl

import pytest
from cryptography import x509

from extender.http.tls import Certificates, TlsFiles
from kube.errors import SettingsError
from tests.unit.extender.pki import HOST, authority, client_context, issue


class Conversation:
    """Both ends of a TLS connection over memory."""

    def __init__(
        self, server: ssl.SSLContext, client: ssl.SSLContext, host: str | None = HOST
    ) -> None:
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.server = server.wrap_bio(there, back, server_side=True)
        self.client = client.wrap_bio(back, there, server_hostname=host)

    def shake(self) -> None:
        """Complete the handshake, both sides' checks included."""
        waiting = [self.client, self.server]
        while waiting:
            for end in tuple(waiting):
                try:
                    end.do_handshake()
                except ssl.SSLWantReadError:
                    continue
                waiting.remove(end)
        # In TLS 1.3 the client is done before the server has judged its certificate.
        self.say(b"x")

    def say(self, text: bytes) -> bytes:
        """From client to server, and the server's echo back."""
        self.client.write(text)
        self.server.write(self.server.read())
        return self.client.read()

    @property
    def shown_serial(self) -> int:
        """Serial number of the certificate that the server showed."""
        der = self.client.getpeercert(binary_form=True)
        assert der is not None
        return x509.load_der_x509_certificate(der).serial_number


def serial(files: TlsFiles) -> int:
    """Serial number of the certificate in the file."""
    return x509.load_pem_x509_certificate(files.cert.read_bytes()).serial_number


def touch(files: TlsFiles) -> None:
    """Files written within one tick of the file system's clock must differ in time."""
    for n, path in enumerate(files.paths, 1):
        os.utime(path, ns=(0, path.stat().st_mtime_ns + n * 1_000_000))


def test_both_sides_show_and_check(tmp_path):
    """The whole of mutual TLS: with the certificates of one authority a word gets through."""
    by = authority()
    server = Certificates(issue(tmp_path / "server", by))
    client = client_context(issue(tmp_path / "client", by))
    conversation = Conversation(server.server, client)
    conversation.shake()
    assert conversation.say(b"hello") == b"hello"
    assert conversation.server.version() == "TLSv1.3"


def test_a_client_without_a_certificate_is_refused(tmp_path):
    """The wire has no other authentication."""
    files = issue(tmp_path, authority())
    without_certificate = ssl.create_default_context(cafile=str(files.client_ca))
    with pytest.raises(ssl.SSLError):
        Conversation(Certificates(files).server, without_certificate).shake()


def test_a_client_of_another_authority_is_refused(tmp_path):
    """Whatever it says its name is."""
    mine = issue(tmp_path / "mine", authority())
    theirs = issue(tmp_path / "theirs", authority("other"))
    context = client_context(theirs)
    context.load_verify_locations(mine.client_ca)
    with pytest.raises(ssl.SSLError):
        Conversation(Certificates(mine).server, context).shake()


def test_a_server_with_another_name_is_refused(tmp_path):
    """Else any certificate of the authority could stand for the extender."""
    files = issue(tmp_path, authority())
    with pytest.raises(ssl.SSLCertVerificationError):
        Conversation(Certificates(files).server, client_context(files), "elsewhere.test").shake()


def test_tls_1_1_is_refused(tmp_path):
    """Versions below 1.2 are broken."""
    server = Certificates(issue(tmp_path, authority())).server
    assert server.minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("host", [HOST, None], ids=["by name", "by address, which sends none"])
def test_a_rotated_certificate_is_shown_and_open_connections_live(tmp_path, host):
    """A restart would drop the scheduler's connections, and with them pods in mid-bind."""
    by = authority()
    old = issue(tmp_path, by)
    certificates = Certificates(old)
    client = client_context(issue(tmp_path / "client", by))
    client.check_hostname = host is not None
    before = Conversation(certificates.server, client, host)
    before.shake()
    assert before.shown_serial == serial(old)
    touch(issue(tmp_path, by))
    assert certificates.reload()
    after = Conversation(certificates.server, client, host)
    after.shake()
    assert after.shown_serial == serial(old) != before.shown_serial
    assert before.say(b"still here") == b"still here"


def test_a_rotated_authority_takes_the_place_of_the_old(tmp_path):
    """Whoever was trusted by the old one alone is refused from then on."""
    first, second = authority("first"), authority("second")
    certificates = Certificates(issue(tmp_path / "server", first))
    client = issue(tmp_path / "client", first)
    touch(issue(tmp_path / "server", second))
    assert certificates.reload()
    old = client_context(client)
    old.load_verify_locations(tmp_path / "server" / "ca.crt")
    with pytest.raises(ssl.SSLError):
        Conversation(certificates.server, old).shake()
    new = client_context(issue(tmp_path / "client", second))
    Conversation(certificates.server, new).shake()


def test_nothing_is_read_while_nothing_changed(tmp_path):
    """Looking is cheap, so it can be done often."""
    assert not Certificates(issue(tmp_path, authority())).reload()


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda files: files.key.unlink(), id="the key is gone"),
        pytest.param(lambda files: files.cert.write_text("no certificate"), id="no certificate"),
        pytest.param(
            lambda files: issue(files.cert.parent / "x", authority()).key.replace(files.key),
            id="half of a rotation",
        ),
    ],
)
def test_unusable_files_change_nothing_and_are_tried_again(tmp_path, spoil):
    """A rotation is several writes; between them the old certificate goes on."""
    by = authority()
    files = issue(tmp_path, by)
    certificates = Certificates(files)
    shown, client = serial(files), client_context(files)
    spoil(files)
    for _ in range(2):
        with pytest.raises(SettingsError, match=r"cannot be used: (no such file|\[)"):
            certificates.reload()
    conversation = Conversation(certificates.server, client)
    conversation.shake()
    assert conversation.shown_serial == shown
    touch(issue(tmp_path, by))
    assert certificates.reload()
    assert not certificates.reload()


def test_the_start_fails_without_the_files(tmp_path):
    """The message names the settings and the files."""
    files = TlsFiles(tmp_path / "a", tmp_path / "b", tmp_path / "c")
    with pytest.raises(SettingsError) as caught:
        Certificates(files)
    assert "settings tls_cert, tls_key, tls_client_ca" in str(caught.value)
    assert str(tmp_path / "a") in str(caught.value)
