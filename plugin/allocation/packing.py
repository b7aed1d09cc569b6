"""Chooses among devices without links: by count, so that much stays whole.

Of partitions it chooses the set that opens the fewest physical GPUs; of replicas a set without
two replicas of one device unless nothing else is left, from the devices with the fewest (or most)
replicas taken; of whole GPUs without a topology the first ones.

- Partitions: those of GPUs that are in use already come first, the fewest free ones before the
  others; of GPUs that must be opened the smallest that holds what is still missing, else the
  one with the most free. No set opens fewer GPUs.
- Replicas: as NVIDIA's plugin, by the replicas taken of a device, fewest first (`distributed`) or
  most first (`packed`; k8s-device-plugin v0.20.0, internal/rm/allocate.go), but a device that the
  set has already comes last, as in the strategy `spread` there. A container that requests two
  replicas is then not given the same device twice.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from plugin.machine import SharedPolicy

if TYPE_CHECKING:
    from plugin.machine import Device

__all__ = ["DevicePool", "pack", "physical_id"]


@dataclass(frozen=True, slots=True)
class DevicePool:
    """Devices of one resource, in the machine's order.

    `usable` are those that may be chosen, `held` those that are held. `busy_gpus` are uuids of
    physical GPUs that are in use by other resources.
    """

    devices: tuple[Device, ...]
    usable: frozenset[str]
    held: frozenset[str] = frozenset()
    busy_gpus: frozenset[str] = frozenset()


def physical_id(device: Device) -> str:
    """The id of the GPU or partition that a device is, or is a replica of.

    >>> from plugin.machine import Device, GpuReading
    >>> from topology.model import Gpu
    >>> physical_id(Device("GPU-1::3", 1, GpuReading(1, Gpu(uuid="GPU-1")), replica=3))
    'GPU-1'
    """
    return device.id if device.replica is None else device.id.rpartition("::")[0]


def pack(
    pool: DevicePool,
    *,
    must_include: frozenset[str],
    size: int,
    policy: SharedPolicy = SharedPolicy.DISTRIBUTED,
) -> tuple[str, ...]:
    """Choose `size` usable ids, with all of `must_include`; there are as many. O(n**2)."""
    chosen = [device for device in pool.devices if device.id in must_include]
    free_ids = pool.usable - must_include
    free = [device for device in pool.devices if device.id in free_ids]
    if any(device.replica is not None for device in pool.devices):
        taken = Counter(physical_id(one) for one in pool.devices if one.id in pool.held)
        more = _from_shared(free, chosen, taken, size=size, policy=policy)
    else:
        in_use = {
            device.place
            for device in pool.devices
            if device.id in pool.held or device.gpu.uuid in pool.busy_gpus
        }
        more = _from_partitions(free, chosen, in_use, size=size)
    return tuple(device.id for device in (*chosen, *more))


def _from_shared(
    free: list[Device],
    chosen: list[Device],
    taken: Counter[str],
    *,
    size: int,
    policy: SharedPolicy,
) -> list[Device]:
    """Take one after another the replica whose device is best."""
    sign = 1 if policy is SharedPolicy.DISTRIBUTED else -1
    in_set = Counter(map(physical_id, chosen))
    picked: list[Device] = []
    while len(chosen) + len(picked) < size:
        best = min(
            (device for device in free if device not in picked),
            key=lambda one: (in_set[physical_id(one)], sign * taken[physical_id(one)]),
        )
        in_set[physical_id(best)] += 1
        picked.append(best)
    return picked


def _from_partitions(
    free: list[Device], chosen: list[Device], in_use: set[int], *, size: int
) -> list[Device]:
    """Take from GPUs in use, then from as few others as possible."""
    by_gpu: dict[int, list[Device]] = {}
    for device in free:
        by_gpu.setdefault(device.place, []).append(device)
    in_use = in_use | {device.place for device in chosen}
    missing = size - len(chosen)
    picked: list[Device] = []
    for gpu in sorted(in_use & by_gpu.keys(), key=lambda gpu: (len(by_gpu[gpu]), gpu)):
        picked += by_gpu.pop(gpu)[: missing - len(picked)]
    while len(picked) < missing:
        wanted = missing - len(picked)
        gpu = min(by_gpu, key=lambda gpu: _fit(len(by_gpu[gpu]), wanted, gpu))
        picked += by_gpu.pop(gpu)[:wanted]
    return picked


def _fit(count: int, wanted: int, gpu: int) -> tuple[bool, int, int]:
    """Sort key: the smallest that is enough, else the largest; then the machine's order."""
    is_short = count < wanted
    return (is_short, -count if is_short else count, gpu)
