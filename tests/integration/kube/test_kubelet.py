"""The kubelet's API over TLS: who is trusted, and who is told our credentials."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kube.client import KubeletClient, Transport, kubelet_endpoint
from kube.errors import KubeError, Unanswered, Unreachable
from tests.cluster.control.credentials import Authority, kubeconfig
from tests.integration.kube.raw_server import HANG, Heard, answer, raw_server, refused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SECRET = "very-secret-token"  # noqa: S105 - it must not appear anywhere
API_SERVER = "https://127.0.0.1:9"
NODE = "node-0"


class Site:
    """A cluster's authority, a kubelet's certificate, and files of both in a folder."""

    def __init__(self, folder: Path, *hosts: str, is_self_signed: bool = False) -> None:
        self.folder = folder
        self.cluster = Authority("cluster")
        self.signer = Authority("kubelet") if is_self_signed else self.cluster
        files = self.signer.server(*hosts).write(folder, "kubelet")
        self.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.tls.load_cert_chain(files.certificate, files.key)
        self.signer_file = folder / "signer.crt"
        self.signer_file.write_bytes(self.signer.certificate)

    @asynccontextmanager
    async def kubelet(
        self, handler, *, config=None, **trust
    ) -> AsyncIterator[tuple[KubeletClient, list[Heard]]]:
        """A client of a kubelet that answers as the handler says, and what the kubelet heard."""
        async with raw_server(handler, tls=self.tls) as server:
            port = int(server.url.rpartition(":")[2])
            endpoint = kubelet_endpoint("127.0.0.1", port=port, **trust)
            transport = await Transport.connect(config, endpoint=endpoint)
            try:
                yield KubeletClient(transport), server.heard
            finally:
                await transport.close()

    def config(self, user) -> Path:
        """A kubeconfig for the API server."""
        path = self.folder / "kubeconfig"
        path.write_text(kubeconfig(API_SERVER, self.cluster.certificate, user), encoding="utf-8")
        return path


def pods(site, handler=lambda _: answer(b"pods"), **trust):
    """Ask for the pods; what came, and what the kubelet heard."""

    async def ask():
        async with site.kubelet(handler, **trust) as (kubelet, heard):
            return await kubelet.pods(), heard

    return asyncio.run(ask())


def who(heard):
    """The credentials of a request."""
    return heard.headers.get("authorization")


def test_a_kubelet_of_the_clusters_authority_is_trusted(tmp_path):
    """With `serverTLSBootstrap` nothing has to be set; credentials are those for the API server."""
    site = Site(tmp_path, "127.0.0.1")
    body, heard = pods(site, config=site.config(SECRET))
    assert body == b"pods"
    assert [(one.method, one.target, who(one)) for one in heard] == [
        ("GET", "/pods", f"Bearer {SECRET}")
    ]


def test_a_self_signed_kubelet_is_trusted_by_its_own_file_and_name(tmp_path):
    """It bears the host's name and no address."""
    site = Site(tmp_path, NODE, is_self_signed=True)
    trust = {"ca_file": site.signer_file, "server_name": NODE}
    body, _ = pods(site, config=site.config(SECRET), **trust)
    assert body == b"pods"


def test_a_kubelet_may_be_left_unverified(tmp_path):
    """Where somebody says so."""
    site = Site(tmp_path, NODE, is_self_signed=True)
    body, _ = pods(site, config=site.config(SECRET), is_verified=False)
    assert body == b"pods"


@pytest.mark.parametrize(
    ("hosts", "is_self_signed", "trust"),
    [
        pytest.param(("127.0.0.1",), True, {}, id="another authority"),
        pytest.param((NODE,), False, {}, id="another name"),
        pytest.param((NODE,), False, {"server_name": "node-1"}, id="another node"),
    ],
)
def test_whoever_is_not_trusted_is_told_nothing(tmp_path, hosts, is_self_signed, trust):
    """No request, no token; and the error says what to set."""
    site = Site(tmp_path, *hosts, is_self_signed=is_self_signed)

    async def attempt():
        async with site.kubelet(lambda _: answer(), config=site.config(SECRET), **trust) as (
            kubelet,
            heard,
        ):
            with pytest.raises(Unreachable) as caught:
                await kubelet.pods()
            return caught.value, heard

    error, heard = asyncio.run(attempt())
    assert "its certificate is not trusted: name the file of the authority" in error.detail
    assert "CERTIFICATE_VERIFY_FAILED" in error.detail
    assert (heard, SECRET in str(error)) == ([], False)


def test_a_file_that_is_not_there_is_told(tmp_path):
    """At the start, with its name."""
    site = Site(tmp_path, "127.0.0.1")
    with pytest.raises(Unreachable) as caught:
        pods(site, config=site.config(SECRET), ca_file=Path("/no/such/ca.crt"))
    assert "No such file" in caught.value.detail


def test_a_client_certificate_is_shown(tmp_path):
    """A kubeconfig may hold one instead of a token."""
    site = Site(tmp_path, "127.0.0.1")
    site.tls.verify_mode = ssl.CERT_REQUIRED
    site.tls.load_verify_locations(cadata=site.cluster.certificate.decode())
    body, heard = pods(site, config=site.config(site.cluster.client("agent")))
    assert (body, who(heard[0])) == (b"pods", None)
    with pytest.raises(KubeError):
        pods(site, config=site.config(SECRET))


@pytest.fixture
def service_account(tmp_path, monkeypatch):
    """The files of a pod's service account, and where the API server is said to be."""
    site = Site(tmp_path, "127.0.0.1")
    (tmp_path / "ca.crt").write_bytes(site.cluster.certificate)
    (tmp_path / "token").write_text("first", encoding="utf-8")
    home = "kubernetes.aio.config.incluster_config"
    monkeypatch.setattr(f"{home}.SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(f"{home}.SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "9")
    return site


def test_a_token_that_was_renewed_is_read_anew(service_account):
    """Refused with the old one, the same request is made with the new; at the same kubelet."""
    file = service_account.folder / "token"

    def handler(heard):
        if who(heard) == "bearer second":
            return answer(b"pods")
        file.write_text("second", encoding="utf-8")
        return refused(401, "Unauthorized")

    body, heard = pods(service_account, handler)
    assert body == b"pods"
    assert [who(one) for one in heard] == ["bearer first", "bearer second"]


def test_requests_go_on_to_the_kubelet(service_account):
    """The client sets the API server's address anew with each token; connections are kept."""
    ports = set()

    async def ask():
        async with service_account.kubelet(lambda _: answer(b"pods")) as (kubelet, heard):
            for _ in range(3):
                assert await kubelet.pods() == b"pods"
                (connection,) = kubelet._door._client.rest_client.pool_manager.connector._conns
                ports.add(connection.port)
            return heard

    assert len(asyncio.run(ask())) == 3
    assert len(ports) == 1


def test_each_request_has_its_own_deadline(service_account):
    """Whoever asks waits inside a call of the kubelet's own."""

    async def ask():
        async with service_account.kubelet(lambda _: [HANG]) as (kubelet, _):
            with pytest.raises(Unanswered) as caught:
                await kubelet.pods(timeout_s=0.05)
            return caught.value

    assert asyncio.run(ask()).reason == "Timeout"


@pytest.mark.parametrize(
    ("code", "told"),
    [(403, "needs verb get on nodes/pods"), (401, "authentication.webhook.enabled")],
)
def test_refusals_say_what_is_missing(service_account, code, told):
    """In the kubelet's answer there is but a line of text."""

    def handler(_):
        return answer(b"Forbidden (user=u, verb=get)", status=f"{code} Forbidden")

    with pytest.raises(KubeError) as caught:
        pods(service_account, handler)
    assert (caught.value.status, told in caught.value.detail) == (code, True)
