"""The HTTPS API of one node's kubelet.

Reads the pods that this kubelet has now, the one that it is admitting among them, and how its
Topology Manager is set. The caller needs `get` on `nodes/pods` and `nodes/configz`
(pkg/kubelet/server/auth.go, 1.36.3). Those rights exist from Kubernetes 1.33 on (feature gate
KubeletFineGrainedAuthz); an older kubelet requires `nodes/proxy` instead, which would allow running
commands in every pod of every node, and which Coterie must never have.

Every refusal is a `KubeError` that says what is missing. The certificate of a kubelet is signed by
the cluster's authority only where the cluster is set up so (`serverTLSBootstrap`); else it is
self-signed and names the host, never its address (cmd/kubelet/app/server.go, `InitializeTLS`).
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from kube.client.configuration import Endpoint
from kube.client.faults import NOT_TRUSTED
from kube.client.transport import Request
from kube.errors import KubeError, Malformed, Unreachable, Unreadable, cut
from topology.annotations import TopologyManagerPolicy, TopologyManagerScope
from topology.model import choice_at, object_at, parse_object
from topology.topology_manager import TopologyManager

if TYPE_CHECKING:
    from pathlib import Path

    from kube.client.transport import Requester

__all__ = ["KUBELET_PORT", "KubeletClient", "kubelet_endpoint"]

KUBELET_PORT = 10250
"""(pkg/cluster/ports/ports.go, KubeletPort)."""
_PODS = "/pods"
_CONFIGZ = "/configz"
_RIGHTS = {_PODS: "nodes/pods", _CONFIGZ: "nodes/configz"}
_CONFIGURATION = "kubeletconfig"
"""The name under which the kubelet puts its configuration (cmd/kubelet/app/server.go,
`initConfigz`)."""


def kubelet_endpoint(
    host: str,
    *,
    port: int = KUBELET_PORT,
    ca_file: Path | None = None,
    server_name: str | None = None,
    is_verified: bool = True,
) -> Endpoint:
    """Where the kubelet of a node listens; see `Endpoint` for the rest.

    >>> kubelet_endpoint("fd00::7").url
    'https://[fd00::7]:10250'
    """
    name = f"[{host}]" if ":" in host else host
    return Endpoint(f"https://{name}:{port}", ca_file, server_name, is_verified)


class KubeletClient:
    """One kubelet, through a `Transport` that was connected to its endpoint.

    `timeout_s` bounds every request that names no bound of its own.
    """

    def __init__(self, requester: Requester, *, timeout_s: float = 5.0) -> None:
        self._requester = requester
        self._timeout_s = timeout_s

    async def pods(self, *, timeout_s: float | None = None) -> bytes:
        """Read the pods, as the JSON of a v1.PodList (`plugin.pods.node_pods` reads it).

        They are those that the kubelet wants to run, static ones among them; their status is the
        API server's, as the kubelet last received it (pkg/kubelet/kubelet_getters.go, `GetPods`).
        """
        return await self._get(_PODS, timeout_s)

    async def topology_manager(self, *, timeout_s: float | None = None) -> TopologyManager:
        """Read how the Topology Manager is set; it is fixed until the kubelet restarts."""
        body = await self._get(_CONFIGZ, timeout_s)
        try:
            found = object_at(parse_object(body), _CONFIGURATION)
            return TopologyManager(
                choice_at(found, "topologyManagerPolicy", TopologyManagerPolicy),
                choice_at(found, "topologyManagerScope", TopologyManagerScope),
            )
        except Unreadable as error:
            msg = cut(f"kubelet's {_CONFIGZ}: {error}")
            raise Malformed(0, "Malformed", msg) from error

    async def _get(self, path: str, timeout_s: float | None) -> bytes:
        bound_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            return await self._requester.request(Request("GET", path, bound_s))
        except KubeError as error:
            advice = _advice(error, path)
            if not advice:
                raise
            detail = f"kubelet's {path}: {advice} ({error.detail})"
            raise type(error)(error.status, error.reason, detail) from error


def _advice(error: KubeError, path: str) -> str:
    """How to fix it; empty where no fix is known."""
    if isinstance(error, Unreachable) and error.reason == NOT_TRUSTED:
        return (
            "its certificate is not trusted: set the CA file that verifies it, the server "
            "name in it if that differs, or switch verification off"
        )
    advice: dict[int, str] = {
        HTTPStatus.UNAUTHORIZED: (
            "it does not accept the credentials: the kubelet must verify tokens with the API "
            "server (authentication.webhook.enabled), and the credentials must be valid"
        ),
        HTTPStatus.FORBIDDEN: (
            f"needs verb get on {_RIGHTS[path]}, a right that kubelets know from Kubernetes 1.33 on"
        ),
        HTTPStatus.NOT_FOUND: "it is not served (enableDebuggingHandlers of the kubelet)",
    }
    return advice.get(error.status, "")
