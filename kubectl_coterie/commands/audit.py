"""`kubectl coterie audit`: what the pods that run now lose by their GPUs, under any scheduler.

It lists nodes and pods as the user and needs no extender; `topology.audit` makes the report.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kubectl_coterie.commands.session_of import output_of, session_of
from kubectl_coterie.errors import CliError
from topology.audit import WIDTH, audit, list_audit, read_cluster
from topology.cli.printing import json_report, screen_width
from topology.errors import TopologyError
from topology.report.blocks import block_text

if TYPE_CHECKING:
    from argparse import Namespace

    from topology.audit import AuditReport

__all__ = ["run"]


def run(given: Namespace) -> int:
    """Print it. Raises `CliError`."""
    report = asyncio.run(_audit(given))
    output = output_of(given)
    if output.form == "json":
        output.print(json_report(report))
    else:
        width = screen_width(output.stream, WIDTH)
        output.print(block_text(list_audit(report, width)))
    return 0


async def _audit(given: Namespace) -> AuditReport:
    async with session_of(given) as session:
        nodes = await session.list_objects("/api/v1/nodes")
        pods = await session.list_objects("/api/v1/pods", {"fieldSelector": "spec.nodeName!="})
        async with session.progress.step(f"judging {len(pods)} pods on {len(nodes)} nodes"):
            return await asyncio.to_thread(_judge, nodes, pods)


def _judge(nodes: object, pods: object) -> AuditReport:
    try:
        cluster = read_cluster(
            {"items": nodes}, {"items": pods}, nodes_name="nodes", pods_name="pods"
        )
        return audit(cluster)
    except TopologyError as error:
        raise CliError(str(error)) from error
