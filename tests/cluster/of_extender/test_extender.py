"""What only the shells of the service mode do: mutual TLS, and certificates that are rotated."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

import pytest

from extender.embedded import parse_cluster
from tests.cluster.control.manifests import (
    ClientFiles,
    Mode,
    extender_settings,
    install,
    scheduler_config,
)
from tests.cluster.control.processes import free_port
from tests.cluster.fleet.stage import SOON_S, Cast, play
from tests.cluster.fleet.workload import make_pod
from tests.unit.extender.pki import BOTH_SIDES, authority, issue

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.control.control_plane import ControlPlane

pytestmark = [pytest.mark.cluster, pytest.mark.own_plane]

LOOPBACK = "127.0.0.1"


def start(plane: ControlPlane, folder: Path, client: ClientFiles) -> Cast:
    """Extender and scheduler with the rights and settings of mode `service`."""
    kubeconfig = install(plane, Mode.SERVICE)
    port, health_port = free_port(), free_port()
    extender = plane.start_extender(
        kubeconfig,
        *("--http-timeout-s", extender_settings(Mode.SERVICE)["http_timeout_s"]),
        *("--health-port", str(health_port)),
        *("--tls-cert", str(folder / "tls.crt"), "--tls-key", str(folder / "tls.key")),
        *("--tls-client-ca", str(folder / "ca.crt")),
        port=port,
        health_url=f"http://{LOOPBACK}:{health_port}",
    )
    config = scheduler_config(
        Mode.SERVICE,
        f"https://{LOOPBACK}:{port}",
        kubeconfig=plane.kubeconfig("system:kube-scheduler"),
        client_files=client,
    )
    return Cast(plane, extender, plane.start_scheduler(config), {}, None)


def test_certificates_are_rotated_while_pods_are_placed(control_plane, tmp_path):
    """The scheduler's connections live on, and new ones meet the new certificate."""
    by = authority()
    issue(tmp_path, by, hosts=(LOOPBACK,), usages=BOTH_SIDES[:1])
    files = issue(tmp_path / "client", by, usages=BOTH_SIDES[1:])
    cast = start(control_plane, tmp_path, ClientFiles(files.client_ca, files.cert, files.key))
    address = LOOPBACK, int(cast.extender.url.rpartition(":")[2])

    async def main() -> None:
        async with play(cast, parse_cluster("1x dgx-h100"), is_known=False) as played:
            await played.create(make_pod("before", 2))
            await played.bound("before")
            old = await asyncio.to_thread(ssl.get_server_certificate, address)
            issue(tmp_path, by, hosts=(LOOPBACK,), usages=BOTH_SIDES[:1])
            async with asyncio.timeout(SOON_S):
                while not cast.extender.events("certificates_changed"):  # noqa: ASYNC110 - a log
                    await asyncio.sleep(0.1)
            assert await asyncio.to_thread(ssl.get_server_certificate, address) != old
            await played.create(make_pod("after", 2))
            await played.bound("after")

    try:
        asyncio.run(main())
    finally:
        cast.stop()
