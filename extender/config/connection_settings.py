"""Where the extender reads from, and where it listens.

A part of `extender.config.settings.ExtenderSettings`: no decision depends on these.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from extender.embedded import parse_cluster, read_cluster
from extender.errors import ClusterSpecError
from kube.settings import ProgramSettings

if TYPE_CHECKING:
    from extender.embedded import ClusterSpec

__all__ = ["ConnectionSettings"]

_FILE_SUFFIXES = (".yaml", ".yml", ".toml")


class ConnectionSettings(ProgramSettings):
    """Settings of connections; see each field."""

    cluster: Annotated[
        str | None,
        Field(
            min_length=1,
            description="Embedded cluster instead of a real one, as machines and counts (`8x "
            "dgx-h100, 4x dgx-1-v100`) or the path of a file (`.yaml`, `.yml`, `.toml`). Without "
            "it the extender is live: it reads nodes and pods from an API server.",
        ),
    ] = None
    kubeconfig: Annotated[
        Path | None,
        Field(
            description="Kubeconfig file of the API server, its current context. Without it (and "
            "without `cluster`) the service account of the pod that the extender runs in."
        ),
    ] = None
    listen_address: Annotated[
        str,
        Field(
            description="Address to listen on; `0.0.0.0` or `::` are all addresses, of IPv4 and "
            "IPv6. Local by default: plain HTTP has no authentication, and kube-scheduler runs "
            "beside the extender."
        ),
    ] = "127.0.0.1"
    listen_port: Annotated[
        int,
        Field(
            ge=0,
            le=65535,
            description="TCP port to listen on; 0 takes a free one, which the log event "
            "`listening` reports. 8888 as in Kubernetes' own extender examples.",
        ),
    ] = 8888
    keep_alive_s: Annotated[
        int,
        Field(
            ge=1,
            le=3600,
            description="Seconds, 1..3600, that an idle connection is kept. 120: kube-scheduler "
            "drops idle connections after 90 s, and does not retry on one that we dropped first.",
        ),
    ] = 120
    body_limit_bytes: Annotated[
        int,
        Field(
            ge=65_536,
            le=1 << 30,
            description="Largest request body, bytes, 65536 to 1 GiB. 8 MiB: 5,000 node names of "
            "253 characters and a pod of the largest size etcd stores are 3 MiB.",
        ),
    ] = 8 << 20
    tls_cert: Annotated[
        Path | None,
        Field(
            description="Server certificate, PEM, with its chain. With `tls_key` and "
            "`tls_client_ca` the extender speaks TLS 1.2 or later only, to clients with a "
            "certificate only. The three files are read again when they change."
        ),
    ] = None
    tls_key: Annotated[Path | None, Field(description="Private key of `tls_cert`, PEM.")] = None
    tls_client_ca: Annotated[
        Path | None,
        Field(description="Certificate authority of the permitted clients: the scheduler."),
    ] = None
    health_port: Annotated[
        int | None,
        Field(
            ge=0,
            le=65535,
            description="TCP port for `/livez`, `/readyz`, `/healthz` and `/metrics` in plain HTTP "
            "on `health_address`, for the kubelet and Prometheus, which bring no certificate and "
            "do not reach a sidecar that listens on 127.0.0.1; 0 takes a free one. By default "
            "those routes are on `listen_port` alone.",
        ),
    ] = None
    health_address: Annotated[
        str,
        Field(
            description="Address of `health_port`. All addresses, since the kubelet and Prometheus "
            "come from elsewhere; 127.0.0.1 in a pod on the host's network that only its kubelet "
            "is to reach."
        ),
    ] = "0.0.0.0"  # noqa: S104 - probes of a pod come to its own address
    read_port: Annotated[
        int | None,
        Field(
            ge=0,
            le=65535,
            description="TCP port for the read API (`/api/v1/`) in plain HTTP on `read_address`, "
            "for people and tools that come through `kubectl port-forward`; 0 takes a free one, "
            "which the log event `listening` reports. By default those routes are on `listen_port` "
            "alone.",
        ),
    ] = None
    read_address: Annotated[
        str,
        Field(
            description="Address of `read_port`. Local by default, which a port-forward reaches: "
            "there is no authentication, and who may forward a port decides who reads; another "
            "one only behind a proxy that authenticates."
        ),
    ] = "127.0.0.1"
    read_hosts: Annotated[
        tuple[str, ...],
        Field(
            description="Names, comma-separated and without port, by which `read_port` may be "
            "called, besides addresses and `localhost`: that of a Service, or of a proxy that "
            "keeps its callers' Host. A request for another is answered 421, so that no web page "
            "reads through a forwarded port by a name that it resolves to the loopback."
        ),
    ] = ()

    def cluster_spec(self) -> ClusterSpec:
        """The description of the embedded cluster. Raises `ClusterSpecError`."""
        if self.cluster is None:
            msg = (
                'setting cluster is missing, expected an embedded cluster such as "1x dgx-h100" '
                "(--cluster), or a running extender (--url)"
            )
            raise ClusterSpecError(msg)
        if self.cluster.endswith(_FILE_SUFFIXES):
            return read_cluster(Path(self.cluster))
        return parse_cluster(self.cluster)
