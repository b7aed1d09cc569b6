"""What the command line says about a set over several nodes, computed and laid out.

What it answers: the report (`topology.report.group_values`) and the blocks of `value --node`. The
figures are those of `topology.groups.group_value`. It prints nothing and reads no file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topology.groups import GroupShare, group_value
from topology.model import REFERENCE_MESSAGE_BYTES
from topology.printable import printable
from topology.report.blocks import Grid, NoteLine
from topology.report.group_values import GroupNodeReport, GroupReport
from topology.report.machine import machine_report
from topology.report.values import SCHEMA_VERSION
from topology.report.wording import gibibytes
from topology.select import build_machine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topology.model import NodeTopology
    from topology.report.blocks import Block
    from topology.select import Machine

__all__ = ["list_group", "report_group"]

_LIMITS = {
    "nothing": "nothing to reduce with one GPU",
    "node": "what the GPUs of node {node} reach among themselves",
    "nic": "the NICs near the GPUs of node {node}",
    "port": "the PCIe ports of the GPUs of node {node}",
    "fabric": "the NVLink fabric that joins the nodes",
}


def report_group(nodes: Sequence[tuple[NodeTopology, tuple[int, ...]]]) -> GroupReport:
    """Report what a set is worth that has these GPUs on these nodes; at least one node.

    Raises `UnknownDevice` for a GPU that a node does not have.
    """
    machines: dict[NodeTopology, Machine] = {}
    for topology, _ in nodes:
        if topology not in machines:
            machines[topology] = build_machine(topology)
    shares = [
        GroupShare(machines[topology], gpus, _clique(topology, gpus)) for topology, gpus in nodes
    ]
    found = group_value(shares)
    return GroupReport(
        schema_version=SCHEMA_VERSION,
        nodes=tuple(map(_node_report, shares)),
        message_bytes=REFERENCE_MESSAGE_BYTES,
        value_gbytes_per_s=found.gbytes_per_s,
        floor_gbytes_per_s=found.least_gbytes_per_s,
        limit=None if found.limited_by is None else found.limited_by.value,
        limiting_node=found.limiting_share,
        reason=None if found.reason is None else found.reason.value,
        reason_node=found.reason_share,
    )


def _clique(topology: NodeTopology, gpus: tuple[int, ...]) -> str | None:
    """The clique of the fabric that holds all the GPUs."""
    members = set(gpus)
    holding = (fabric for fabric in topology.fabrics if members <= dict(fabric.ports).keys())
    return next((fabric.clique for fabric in holding), None)


def _node_report(share: GroupShare) -> GroupNodeReport:
    own, near = share.own, share.near_nics
    return GroupNodeReport(
        machine=machine_report(share.machine.topology),
        gpus=share.gpus,
        value_gbytes_per_s=own.gbytes_per_s,
        is_known=own.is_known,
        near_nics=tuple(nic.name for nic in near),
        near_nics_gbit_per_s=tuple(nic.gbit_per_s for nic in near),
    )


def list_group(report: GroupReport) -> list[Block]:
    """List what the set is worth, and each node's part in it."""
    n_gpus = sum(len(node.gpus) for node in report.nodes)
    counts = f"{_count(len(report.nodes), 'node')}, {_count(n_gpus, 'GPU')}"
    facts = [
        ("bandwidth", _rate(report.value_gbytes_per_s)),
        ("", f"all-reduce bus bandwidth at {gibibytes(report.message_bytes)} messages"),
        ("after the stated error", _rate(report.floor_gbytes_per_s)),
    ]
    if n_gpus == 1:
        facts = [("bandwidth", _LIMITS["nothing"])]
    elif report.limit is not None:
        facts.append(("limited by", _LIMITS[report.limit].format(node=report.limiting_node)))
    if report.reason is not None:
        facts.append(("unknown", f"{report.reason} (node {report.reason_node})"))
    rows = tuple(_node_row(index, node) for index, node in enumerate(report.nodes))
    columns = ("node", "machine", "GPUs", "GB/s alone", "NICs near", "Gbit/s")
    return [
        NoteLine(counts, is_heading=True),
        Grid(("", ""), tuple(facts)),
        NoteLine("Nodes", is_heading=True),
        Grid(columns, rows, frozenset({0, 3, 4})),
    ]


def _node_row(index: int, node: GroupNodeReport) -> tuple[str, ...]:
    rates = dict.fromkeys("?" if r is None else f"{r:g}" for r in node.near_nics_gbit_per_s)
    n_nics = "?" if node.machine.n_nics is None else str(len(node.near_nics))
    alone = f"{node.value_gbytes_per_s:.1f}" if len(node.gpus) > 1 else "-"
    return (
        str(index),
        printable(node.machine.name or "?"),
        ",".join(map(str, node.gpus)),
        alone if node.is_known else f"{alone}?",
        n_nics,
        ", ".join(rates) or "-",
    )


def _rate(figure: float | None) -> str:
    return "?" if figure is None else f"{figure:.1f} GB/s"


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"
