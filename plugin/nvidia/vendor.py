"""NVIDIA as a `plugin.machine.Vendor`: its parts under the settings."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from plugin.machine import DeviceAccess, Vendor
from plugin.nvidia.container.allocate_response import grant
from plugin.nvidia.container.cdi import GPU_CLASS, cdi_documents, incomplete
from plugin.nvidia.container.cdi_files import CdiGenerator, open_cdi_files
from plugin.nvidia.container.dev_files import find_dev_root, find_nodes, find_nvml
from plugin.nvidia.container.written_files import written_files
from plugin.nvidia.evidence import EVIDENCE
from plugin.nvidia.gpu_node import minor_of
from plugin.nvidia.mig_strategy import mig_units, profile_of
from plugin.nvidia.nvml.reader import NvmlMachine
from plugin.nvidia.sharing import SHARING, read_sharing
from plugin.nvidia.simulated import SIMULATED
from topology.model import DEFAULT_RESOURCE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plugin.machine import GpuReading, ServedMachine
    from plugin.nvidia.settings import NvidiaSettings
    from plugin.sysfs import Sysfs

__all__ = ["VENDOR"]

_HERE = Path("/")


def _open_reader(settings: NvidiaSettings, sysfs: Sysfs) -> NvmlMachine:
    return NvmlMachine(sysfs, find_library=partial(find_nvml, settings.driver_root_ctr_path))


def _open_access(settings: NvidiaSettings, sysfs: Sysfs, served: ServedMachine) -> DeviceAccess:
    present = find_nodes(
        find_dev_root(settings.driver_root_ctr_path, _HERE),
        sysfs.proc,
        extras=settings.extras,
        imex_channels=settings.imex_channel_ids,
        is_imex_required=settings.imex_required,
    )
    rules = settings.access_rules
    give = partial(grant, present=present, rules=rules)
    if not rules.has_cdi:
        ways = ", ".join(sorted(one.value for one in rules.list_strategies))
        return DeviceAccess(give, needs_runtime=f"device_list_strategy {ways}")
    # A container that gets a name which its runtime does not find would not start.
    made = cdi_documents(
        served.devices, present, strategy=rules.id_strategy, dev_root=rules.dev_root
    )
    texts = open_cdi_files(settings.cdi_rules).write(made.documents)
    gpus = next((one for one in made.documents if one.cdi_class == GPU_CLASS), None)
    names = () if gpus is None else (device.name for device in gpus.devices)
    has_driver = settings.cdi_generator is not CdiGenerator.OWN
    lacks = incomplete(texts[GPU_CLASS], names, has_driver=has_driver) if gpus else ()
    return DeviceAccess(give, made.left_out, lacks)


def _facts_of(gpu: GpuReading) -> Mapping[str, object]:
    """As docs/plugin.md has them."""
    instances: list[dict[str, object]] = []
    for one in gpu.partitions:
        gpu_instance, compute_instance = one.address
        instances.append(
            {
                "uuid": one.id,
                "profile": profile_of(one),
                "index": one.index,
                "gpu_instance": gpu_instance,
                "compute_instance": compute_instance,
                "memory_mib": one.memory_mib,
            }
        )
    return {"minor": minor_of(gpu), "is_mig_enabled": gpu.is_partitioned, "instances": instances}


VENDOR: Vendor[NvidiaSettings] = Vendor(
    default_resource=DEFAULT_RESOURCE,
    partitions="MIG instances",
    visible_devices="CUDA_VISIBLE_DEVICES",  # CUDA C++ Programming Guide, environment variables
    open_reader=_open_reader,
    units_of=lambda settings, gpus, base: mig_units(gpus, base, settings.mig_strategy),
    open_access=_open_access,
    written_files=lambda settings: written_files(settings.cdi_rules.folder),
    fault_rules=lambda settings: settings.xid_rules,
    read_sharing=lambda raw, domain: read_sharing(raw.get(SHARING), domain=domain),
    facts_of=_facts_of,
    simulated=SIMULATED,
    evidence=EVIDENCE,
)
