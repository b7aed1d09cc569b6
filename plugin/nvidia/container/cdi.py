"""CDI specifications of the NVIDIA devices that this node serves.

Names and annotations are those of NVIDIA's plugin and of CDI's library (container-device-interface
v1.1.1, pkg/cdi/annotations.go).

Such a document holds device nodes and one variable, nothing else. NVIDIA's own tool (`nvidia-ctk
cdi generate`) also mounts the driver's libraries and programs, and runs hooks that make the linker
find them; with this one a container sees its GPUs, but brings the driver's libraries itself or gets
them from elsewhere. `incomplete` says what a specification lacks, whoever made it.
"""

from __future__ import annotations

import hashlib
import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kube.errors import Unreadable
from plugin.container import CdiDevice, CdiDocument, NoAccess, is_cdi_device
from plugin.nvidia.container.device_nodes import (
    IdStrategy,
    PresentNodes,
    device_name,
    device_nodes,
    imex_node,
    unshared,
)
from topology.errors import quote
from topology.model import object_at, objects_at, parse_object, text_at

if TYPE_CHECKING:
    from collections.abc import Iterable

    from plugin.machine import Device

__all__ = [
    "CDI_ANNOTATION_PREFIX",
    "CDI_VENDOR",
    "GPU_CLASS",
    "IMEX_CLASS",
    "cdi_annotation",
    "cdi_documents",
    "cdi_name",
    "incomplete",
]

CDI_VENDOR = "k8s.device-plugin.nvidia.com"
"""NVIDIA's plugin's (k8s-device-plugin v0.20.0, cmd/nvidia-device-plugin/plugin-manager.go:60)."""
CDI_ANNOTATION_PREFIX = "cdi.k8s.io/"
"""(pkg/cdi/annotations.go, `AnnotationPrefix`)."""
GPU_CLASS = "gpu"
IMEX_CLASS = "imex-channel"
"""(k8s-device-plugin, internal/cdi/imex.go)."""

_ALL = "all"
"""The device that is all others (toolkit v1.20.1, cmd/nvidia-ctk/cdi/generate, `allDeviceName`);
the only one of a class that is an `Extra` (k8s-device-plugin, internal/cdi/cdi.go,
`AdditionalDevices`)."""
_ANNOTATED_BY = "nvidia-device-plugin"
"""(k8s-device-plugin, internal/plugin/server.go, `getCDIDeviceAnnotations`)."""
_KEY_LENGTH = 32
"""Characters of a digest: with the plugin's name and `_` that makes 53 of the 63 that a key may
have (pkg/cdi/annotations.go, `AnnotationKey`)."""
_LIBCUDA = "libcuda.so"
"""The driver's part of CUDA: libcuda.so.<version>, which programs load as libcuda.so.1."""
_NOTHING_MORE = "NVIDIA_VISIBLE_DEVICES=void"
"""Keeps NVIDIA's own runtime from adding what the image or the pod request by this variable: often
`all` (toolkit v1.20.1, pkg/nvcdi/wrapper.go, `GetCommonEdits`)."""


@dataclass(frozen=True, slots=True)
class CdiDocuments:
    """All documents of a node; `left_out` says which devices are in none, and why."""

    documents: tuple[CdiDocument, ...]
    left_out: tuple[str, ...] = ()


def cdi_name(cdi_class: str, device: str) -> str:
    """The qualified name of a device.

    >>> cdi_name("gpu", "GPU-8d3c")
    'k8s.device-plugin.nvidia.com/gpu=GPU-8d3c'
    """
    return f"{CDI_VENDOR}/{cdi_class}={device}"


def cdi_annotation(prefix: str, ids: Iterable[str], names: Iterable[str]) -> dict[str, str]:
    """The annotation that requests devices by qualified name.

    Its key must differ from that of every other request of the same container; it is made of
    `ids`, the kubelet's device ids, which no two requests share.
    """
    digest = hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()[:_KEY_LENGTH]
    return {f"{prefix}{_ANNOTATED_BY}_{digest}": ",".join(names)}


def incomplete(text: str, devices: Iterable[str], *, has_driver: bool) -> tuple[str, ...]:
    """What a specification of GPUs lacks for containers that get these devices, for people.

    `has_driver`: it is to mount the driver's `libcuda.so`, without which no CUDA program starts.
    """
    try:
        body = parse_object(text)
        described = tuple(objects_at(body, "devices"))
        edits = [object_at(one, "containerEdits") for one in (body, *described)]
        mounts = [one for edit in edits for one in objects_at(edit, "mounts")]
        names = {text_at(one, "name") for one in described}
        paths = [text_at(one, "containerPath") for one in mounts]
    except Unreadable as error:
        return (f"CDI specification of GPUs cannot be read: {error}",)
    missing = ", ".join(name for name in devices if name not in names)
    has_libcuda = any(posixpath.basename(path).startswith(_LIBCUDA) for path in paths)
    return (
        *((f"CDI specification of GPUs lacks {missing}",) if missing else ()),
        *((f"CDI specification of GPUs mounts no {_LIBCUDA}",) if has_driver > has_libcuda else ()),
    )


def cdi_documents(
    devices: Iterable[Device], present: PresentNodes, *, strategy: IdStrategy, dev_root: str = "/"
) -> CdiDocuments:
    """Describe the devices that are served, and the extras and IMEX channels that are present.

    Each class has a document where anything is in it: one without a device would be invalid.
    """
    described: list[CdiDevice] = []
    left_out: list[str] = []
    for device in unshared(devices):
        name = device_name(device, strategy)
        nodes = device_nodes(device, present)
        if isinstance(nodes, NoAccess):
            left_out.append(nodes.reason)
        elif not is_cdi_device(name):
            left_out.append(f"device {quote(name)} has a name that CDI does not take")
        else:
            described.append(CdiDevice(name, nodes))
    if described:
        everything = dict.fromkeys(node for device in described for node in device.nodes)
        described.append(CdiDevice(_ALL, tuple(everything)))
    channels = tuple(CdiDevice(f"{n}", (imex_node(n),)) for n in present.imex_channels)
    documents = (
        CdiDocument(
            CDI_VENDOR, GPU_CLASS, tuple(described), present.control, (_NOTHING_MORE,), dev_root
        ),
        CdiDocument(CDI_VENDOR, IMEX_CLASS, channels, dev_root=dev_root),
        *(
            CdiDocument(CDI_VENDOR, extra.value, (CdiDevice(_ALL, nodes),), dev_root=dev_root)
            for extra, nodes in present.extras.items()
        ),
    )
    return CdiDocuments(tuple(d for d in documents if d.devices), tuple(left_out))
