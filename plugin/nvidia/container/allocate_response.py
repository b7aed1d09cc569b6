"""What a container gets with NVIDIA devices: the contents of an Allocate answer.

As NVIDIA's device plugin gives them, so that the same container runtimes understand.

Source: k8s-device-plugin v0.20.0, internal/plugin/server.go, `getAllocateResponse` and what it
calls. Three things differ on purpose: devices come in the machine's order, where NVIDIA's come in
that of a Go map; a device is named once, however many of its replicas a container has; and the key
of the CDI annotation is made of the devices, where NVIDIA's is random, so that equal requests get
equal answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from plugin.container import ContainerAccess, DeviceNode, Mount, NoAccess, host_path, is_cdi_device
from plugin.nvidia.container.cdi import (
    CDI_ANNOTATION_PREFIX,
    GPU_CLASS,
    IMEX_CLASS,
    cdi_annotation,
    cdi_name,
)
from plugin.nvidia.container.device_nodes import (
    Extra,
    IdStrategy,
    PresentNodes,
    device_name,
    device_nodes,
    imex_node,
    unshared,
)
from topology.errors import quote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plugin.machine import Device

__all__ = ["AccessRules", "ListStrategy", "grant"]

_VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
_IMEX_CHANNELS = "NVIDIA_IMEX_CHANNELS"
"""(api/config/v1/imex.go, `ImexChannelEnvVar`)."""
_MOUNTS_FOLDER = "/var/run/nvidia-container-devices"
_MOUNTS_SOURCE = "/dev/null"
"""(internal/plugin/server.go, `deviceListAsVolumeMounts...`)."""


class ListStrategy(Enum):
    """How container runtimes are given the list of devices (api/config/v1/consts.go)."""

    ENVVAR = "envvar"
    VOLUME_MOUNTS = "volume-mounts"
    CDI_ANNOTATIONS = "cdi-annotations"
    CDI_CRI = "cdi-cri"

    @property
    def is_cdi(self) -> bool:
        """Whether it needs CDI specifications on the node."""
        return self in {ListStrategy.CDI_ANNOTATIONS, ListStrategy.CDI_CRI}


@dataclass(frozen=True, slots=True)
class AccessRules:
    """How containers are given their devices; the settings of that name.

    `dev_root` is where the host has the folder /dev that its device nodes lie in.
    """

    list_strategies: frozenset[ListStrategy] = frozenset({ListStrategy.ENVVAR})
    id_strategy: IdStrategy = IdStrategy.UUID
    passes_device_nodes: bool = False
    dev_root: str = "/"
    extras: frozenset[Extra] = frozenset()
    cdi_annotation_prefix: str = CDI_ANNOTATION_PREFIX

    @property
    def has_cdi(self) -> bool:
        """Whether any strategy needs CDI specifications on the node."""
        return any(strategy.is_cdi for strategy in self.list_strategies)

    @property
    def is_cdi_only(self) -> bool:
        """Whether all do: NVIDIA's plugin then only adds the extras' variables."""
        return all(strategy.is_cdi for strategy in self.list_strategies)


def grant(
    devices: Sequence[Device], *, present: PresentNodes, rules: AccessRules
) -> ContainerAccess | NoAccess:
    """What one container gets with these devices, of which there is at least one.

    `NoAccess` where the container could not use one of them: its device node is unknown, or CDI
    cannot name it.
    """
    chosen = unshared(devices)
    names = tuple(device_name(device, rules.id_strategy) for device in chosen)
    cdi = _cdi_names(names, present, rules) if rules.has_cdi else ()
    if isinstance(cdi, NoAccess):
        return cdi
    ids = [device.id for device in devices]
    has = rules.list_strategies
    annotations = (
        cdi_annotation(rules.cdi_annotation_prefix, ids, cdi)
        if ListStrategy.CDI_ANNOTATIONS in has
        else {}
    )
    cdi_devices = cdi if ListStrategy.CDI_CRI in has else ()
    if rules.is_cdi_only:
        env = _env(names, present, rules)
        return ContainerAccess(env=env, annotations=annotations, cdi_devices=cdi_devices)
    nodes = _nodes(chosen, present, rules) if rules.passes_device_nodes else ()
    if isinstance(nodes, NoAccess):
        return nodes
    return ContainerAccess(
        env=_env(names, present, rules),
        mounts=_mounts(names, present) if ListStrategy.VOLUME_MOUNTS in has else (),
        device_nodes=nodes,
        annotations=annotations,
        cdi_devices=cdi_devices,
    )


def _cdi_names(
    names: tuple[str, ...], present: PresentNodes, rules: AccessRules
) -> tuple[str, ...] | NoAccess:
    """Qualified names in NVIDIA's order; an extra without any device node has no specification."""
    bad = next((name for name in names if not is_cdi_device(name)), None)
    if bad is not None:
        return NoAccess(f"device {quote(bad)} has a name that CDI does not take")
    gpus = [cdi_name(GPU_CLASS, name) for name in names]
    channels = [cdi_name(IMEX_CLASS, f"{channel}") for channel in present.imex_channels]
    extras = [cdi_name(e.value, "all") for e in Extra if e in rules.extras and e in present.extras]
    return (*gpus, *channels, *extras)


def _env(names: tuple[str, ...], present: PresentNodes, rules: AccessRules) -> dict[str, str]:
    """With both strategies the variable names the mounts' folder, as NVIDIA's plugin has it."""
    env: dict[str, str] = {}
    if ListStrategy.ENVVAR in rules.list_strategies:
        env[_VISIBLE_DEVICES] = ",".join(names)
        if present.imex_channels:
            env[_IMEX_CHANNELS] = ",".join(map(str, present.imex_channels))
    if ListStrategy.VOLUME_MOUNTS in rules.list_strategies:
        env[_VISIBLE_DEVICES] = _MOUNTS_FOLDER
    env.update({extra.variable: "enabled" for extra in Extra if extra in rules.extras})
    return env


def _mounts(names: tuple[str, ...], present: PresentNodes) -> tuple[Mount, ...]:
    channels = (f"imex/{channel}" for channel in present.imex_channels)
    return tuple(Mount(f"{_MOUNTS_FOLDER}/{name}", _MOUNTS_SOURCE) for name in (*names, *channels))


def _nodes(
    devices: tuple[Device, ...], present: PresentNodes, rules: AccessRules
) -> tuple[DeviceNode, ...] | NoAccess:
    paths = list(present.control)
    for device in devices:
        found = device_nodes(device, present)
        if isinstance(found, NoAccess):
            return found
        paths += found
    paths += [imex_node(channel) for channel in present.imex_channels]
    return tuple(DeviceNode(path, host_path(rules.dev_root, path)) for path in dict.fromkeys(paths))
