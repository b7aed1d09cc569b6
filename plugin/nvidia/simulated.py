"""How a simulated machine with NVIDIA GPUs looks: uuids, device nodes, XIDs and MIG devices."""

from __future__ import annotations

import re

from plugin.machine import Partition, SimulatedHardware
from plugin.nvidia.gpu_node import gpu_node
from plugin.nvidia.mig_strategy import MIG
from plugin.nvidia.xids import XID

__all__ = ["SIMULATED"]

_MAX_INSTANCES = 7
"""Most MIG devices of a GPU (7 of 1g on A100 and later; NVIDIA MIG user guide)."""
_MIB_PER_GIB = 1024
_PROFILE = re.compile(r"(?:[1-7]c\.)?[1-7]g\.([1-9][0-9]{0,3})gb(?:[+-][a-z.]+)*")
"""A profile as NVIDIA names it: 1g.10gb, 1c.3g.40gb, 1g.10gb+me."""


def _partition(profile: str, parent: str, index: int, made_uuid: str) -> Partition | None:
    """One compute instance in each GPU instance, whose ids count from 1."""
    match = _PROFILE.fullmatch(profile)
    if match is None or index >= _MAX_INSTANCES:
        return None
    return Partition(
        id=f"{MIG}-{made_uuid}",
        kind=f"{MIG} {profile}",
        parent=parent,
        index=index,
        address=(index + 1, 0),
        memory_mib=int(match[1]) * _MIB_PER_GIB,
    )


SIMULATED = SimulatedHardware(
    uuid_prefix="GPU-",
    nodes=lambda index: (gpu_node(index),),
    codes=XID,
    partitions=MIG,
    partition_rule=f'a MIG profile such as "1g.10gb", at most {_MAX_INSTANCES} for a GPU',
    partition=_partition,
)
