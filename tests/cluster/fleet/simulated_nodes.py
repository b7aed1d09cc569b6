"""Simulated nodes beside real ones: made from recordings, played by a stand-in of their own.

The nodes exist while a block lasts. Each publishes its topology with a token of its own plugin, as
the policies demand. As a program it is the stand-in for the nodes that its arguments name; it
never touches a pod on any other, where a real kubelet is.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from extender.embedded import lay_out, node_manifest
from tests.cluster.control.api import open_api
from tests.cluster.fleet.nodes import node_path
from tests.cluster.fleet.stand_in import StandIn
from tests.cluster.node.plugin_account import plugin_kubeconfig

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from extender.embedded import ClusterSpec, EmbeddedNode
    from tests.cluster.control.api import Api
    from tests.cluster.control.control_plane import ControlPlane

__all__ = ["simulated_nodes"]

_NODES = "/api/v1/nodes"
_PODS = "/api/v1/pods"


@contextmanager
def simulated_nodes(
    control_plane: ControlPlane, spec: ClusterSpec
) -> Iterator[tuple[EmbeddedNode, ...]]:
    """Nodes of that description, with their pods gone at last; `deploy_plugin` comes first.

    Their pods run as long as their annotation says, and stay when they have ended, for a Job.
    """
    nodes = lay_out(spec)
    command = [
        *(sys.executable, "-m", "tests.cluster.fleet.simulated_nodes"),
        *("--kubeconfig", str(control_plane.admin), *(node.name for node in nodes)),
    ]
    try:
        for node in nodes:
            asyncio.run(_add(control_plane, node))
        stand_in = control_plane.start_program("simulated-nodes", command)
        try:
            yield nodes
        finally:
            stand_in.stop()
    finally:
        asyncio.run(_remove(control_plane.admin, nodes))


async def _add(control_plane: ControlPlane, node: EmbeddedNode) -> None:
    """The kubelet registers it, bare; its plugin says what its GPUs are."""
    manifest = node_manifest(node)
    published = manifest["metadata"].pop("annotations")
    async with open_api(control_plane.admin) as admin:
        await admin.create(_NODES, manifest)
    async with open_api(plugin_kubeconfig(control_plane, node.name)) as plugin:
        await plugin.patch(node_path(node.name), {"metadata": {"annotations": published}})


async def _remove(admin: Path, nodes: Sequence[EmbeddedNode]) -> None:
    async with open_api(admin) as api:
        for node in nodes:
            listed = await api.get(_PODS, fieldSelector=f"spec.nodeName={node.name}")
            for pod in listed["items"]:
                meta = pod["metadata"]
                path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
                await api.end(path)
            await api.delete(node_path(node.name))


class _Some(StandIn):
    """Plays these nodes alone."""

    def __init__(self, api: Api, nodes: Collection[str]) -> None:
        super().__init__(api, keeps=True)
        self._nodes = frozenset(nodes)

    def _see(self, pod: Mapping[str, Any]) -> None:
        if pod["spec"]["nodeName"] in self._nodes:
            super()._see(pod)


async def _main(kubeconfig: Path, nodes: Collection[str]) -> None:
    async with open_api(kubeconfig) as api, _Some(api, nodes) as stand_in:
        await stand_in.serve()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("nodes", nargs="+")
    arguments = parser.parse_args()
    asyncio.run(_main(arguments.kubeconfig, arguments.nodes))
