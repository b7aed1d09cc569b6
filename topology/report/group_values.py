"""The shape of what `value --node` says: one report for a set over nodes.

Field names are the JSON contract as in `topology.report.values`: units stand in the names, `null`
means unknown, never zero.
"""

from __future__ import annotations

from dataclasses import dataclass

from topology.report.values import MachineReport  # noqa: TC001 - schemas are made of it

__all__ = ["GroupNodeReport", "GroupReport"]


@dataclass(frozen=True, slots=True)
class GroupNodeReport:
    """The part of the set on one node."""

    machine: MachineReport
    """Which machine."""
    gpus: tuple[int, ...]
    """The GPUs on it, ascending."""
    value_gbytes_per_s: float
    """What these GPUs are worth among themselves, GB/s; 0 for one GPU."""
    is_known: bool
    """Whether that rests on nothing unknown."""
    near_nics: tuple[str, ...]
    """Names of the RDMA NICs within PXB of any of the GPUs."""
    near_nics_gbit_per_s: tuple[float | None, ...]
    """Rates of their links in the same order, Gbit/s; null where unknown or no link is up."""


@dataclass(frozen=True, slots=True)
class GroupReport:
    """`value --node ... --json`: what a set over nodes is worth."""

    schema_version: int
    """1."""
    nodes: tuple[GroupNodeReport, ...]
    """The nodes, as they were given."""
    message_bytes: int
    """Message size that the figures hold for, bytes."""
    value_gbytes_per_s: float | None
    """Predicted all-reduce bus bandwidth, GB/s; 0 for one GPU in all, null where unknown."""
    floor_gbytes_per_s: float | None
    """The same less the stated errors, GB/s; null also where the value rests on an unknown."""
    limit: str | None
    """What limits it: nothing, node, nic, port or fabric; null where the value is unknown."""
    limiting_node: int | None
    """Index in `nodes`, from 0, of the first that limits it; null for the fabric."""
    reason: str | None
    """Why a figure is null, for people; null where none is."""
    reason_node: int | None
    """Index in `nodes` of the first that `reason` is about."""
