"""Who has which GPU of a node, from the extender's answer or from the node plugin's report.

The extender knows every plan; the plugin's report has pods without a plan and unhealthy devices
alone, so that a GPU which it does not name may be in use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topology.annotations import DevicesReport
    from topology.model import NodeTopology

__all__ = ["GpuOwner", "owners_in_answer", "owners_in_report"]


@dataclass(frozen=True, slots=True)
class GpuOwner:
    """A GPU's state: `is_free` None is unknown; `reason` says why it is unhealthy."""

    is_free: bool | None = None
    pod: str | None = None
    state: str | None = None
    reason: str | None = None


def owners_in_answer(node: Mapping[str, Any], topology: NodeTopology) -> tuple[GpuOwner, ...]:
    """By GPU of the topology, from the read API's entry of the node; by id, else by place."""
    gpus = node["gpus"]
    by_id = {gpu["id"]: gpu for gpu in gpus}
    found: list[GpuOwner] = []
    for index, gpu in enumerate(topology.gpus):
        entry = by_id.get(gpu.uuid) if gpu.uuid is not None else None
        if entry is None and gpu.uuid is None and index < len(gpus):
            entry = gpus[index]
        if entry is None:
            found.append(GpuOwner())
            continue
        state = entry["state"]
        found.append(GpuOwner(state == "free", entry["pod"], state, entry["reason"]))
    return tuple(found)


def owners_in_report(report: DevicesReport, topology: NodeTopology) -> tuple[GpuOwner, ...]:
    """By GPU of the topology, from the node's own report: what it does not name is unknown."""
    reasons = {device.id: device.reason for device in report.unhealthy}
    pods = {gpu: f"{hold.namespace}/{hold.name}" for hold in report.holds for gpu in hold.ids}
    return tuple(
        GpuOwner(
            is_free=False if gpu.uuid in pods or gpu.uuid in reasons else None,
            pod=pods.get(gpu.uuid or ""),
            state="held" if gpu.uuid in pods else None,
            reason=reasons.get(gpu.uuid or ""),
        )
        for gpu in topology.gpus
    )
