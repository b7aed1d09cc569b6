"""The kubelet's API over TLS: who is trusted, and who receives our credentials."""

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
from tests.integration.kube.raw_server import HANG, Received, answer, raw_server, refused

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
    ) -> AsyncIterator[tuple[KubeletClient, list[Received]]]:
        """A client of a kubelet that answers as the handler says, and what the kubelet received."""
        async with raw_server(handler, tls=self.tls) as server:
            port = int(server.url.rpartition(":")[2])
            endpoint = kubelet_endpoint("127.0.0.1", port=port, **trust)
            transport = await Transport.connect(config, endpoint=endpoint)
            try:
                yield KubeletClient(transport), server.received
            finally:
                await transport.close()

    def config(self, user) -> Path:
        """A kubeconfig for the API server."""
        path = self.folder / "kubeconfig"
        path.write_text(kubeconfig(API_SERVER, self.cluster.certificate, user), encoding="utf-8")
        return path


def pods(site, handler=lambda _: answer(b"pods"), **trust):
    """Request the pods; what came, and what the kubelet received."""

    async def call():
        async with site.kubelet(handler, **trust) as (kubelet, received):
            return await kubelet.pods(), received

    return asyncio.run(call())


def who(received):
    """The credentials of a request."""
    return received.headers.get("authorization")


def test_a_kubelet_of_the_clusters_authority_is_trusted(tmp_path):
    """With `serverTLSBootstrap` nothing has to be set; credentials are those for the API server."""
    site = Site(tmp_path, "127.0.0.1")
    body, received = pods(site, config=site.config(SECRET))
    assert body == b"pods"
    assert [(one.method, one.target, who(one)) for one in received] == [
        ("GET", "/pods", f"Bearer {SECRET}")
    ]


def test_a_self_signed_kubelet_is_trusted_by_its_own_file_and_name(tmp_path):
    """It bears the host's name and no address."""
    site = Site(tmp_path, NODE, is_self_signed=True)
    trust = {"ca_file": site.signer_file, "server_name": NODE}
    body, _ = pods(site, config=site.config(SECRET), **trust)
    assert body == b"pods"


def test_a_kubelet_may_be_left_unverified(tmp_path):
    """Where the settings say so."""
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
def test_whoever_is_not_trusted_is_advice_nothing(tmp_path, hosts, is_self_signed, trust):
    """No request, no token; and the error says what to set."""
    site = Site(tmp_path, *hosts, is_self_signed=is_self_signed)

    async def attempt():
        async with site.kubelet(lambda _: answer(), config=site.config(SECRET), **trust) as (
            kubelet,
            received,
        ):
            with pytest.raises(Unreachable) as caught:
                await kubelet.pods()
            return caught.value, received

    error, received = asyncio.run(attempt())
    assert "its certificate is not trusted: set the CA file that verifies it" in error.detail
    assert "CERTIFICATE_VERIFY_FAILED" in error.detail
    assert (received, SECRET in str(error)) == ([], False)


def test_a_missing_file_is_reported(tmp_path):
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
    body, received = pods(site, config=site.config(site.cluster.client("plugin")))
    assert (body, who(received[0])) == (b"pods", None)
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


def test_a_renewed_token_is_read_again(service_account):
    """Refused with the old one, the same request is made with the new; at the same kubelet."""
    file = service_account.folder / "token"

    def handler(received):
        if who(received) == "bearer second":
            return answer(b"pods")
        file.write_text("second", encoding="utf-8")
        return refused(401, "Unauthorized")

    body, received = pods(service_account, handler)
    assert body == b"pods"
    assert [who(one) for one in received] == ["bearer first", "bearer second"]


def test_requests_go_on_to_the_kubelet(service_account):
    """The client sets the API server's address again with each token; connections are kept."""

    async def call():
        async with service_account.kubelet(lambda _: answer(b"pods")) as (kubelet, received):
            for _ in range(3):
                assert await kubelet.pods() == b"pods"
            return received

    assert [one.connection for one in asyncio.run(call())] == [1, 1, 1]


def test_each_request_has_its_own_deadline(service_account):
    """The caller waits inside a call of the kubelet's own."""

    async def call():
        async with service_account.kubelet(lambda _: [HANG]) as (kubelet, _):
            with pytest.raises(Unanswered) as caught:
                await kubelet.pods(timeout_s=0.05)
            return caught.value

    assert asyncio.run(call()).reason == "Timeout"


@pytest.mark.parametrize(
    ("code", "advice"),
    [(403, "needs verb get on nodes/pods"), (401, "authentication.webhook.enabled")],
)
def test_refusals_say_what_is_missing(service_account, code, advice):
    """In the kubelet's answer there is but a line of text."""

    def handler(_):
        return answer(b"Forbidden (user=u, verb=get)", status=f"{code} Forbidden")

    with pytest.raises(KubeError) as caught:
        pods(service_account, handler)
    assert (caught.value.status, advice in caught.value.detail) == (code, True)
