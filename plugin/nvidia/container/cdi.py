"""A CDI specification of the devices that this node serves.

What it answers: how a device is called in CDI, which annotation asks for it, and the document that
tells a container runtime what to do for it. It must never write a file
(`plugin.nvidia.container.cdi_files` does) nor look at the machine.

The rules are those of the Container Device Interface, SPEC.md v1.1.0 and the library that runtimes
check files with (container-device-interface v1.1.1, pkg/parser/parser.go, pkg/cdi/annotations.go,
specs-go/version.go). A document states the lowest version whose fields it uses, as NVIDIA's does:
a runtime refuses every version that it does not know.

Such a document holds device nodes and one variable, nothing else. NVIDIA's own tool (`nvidia-ctk
cdi generate`) also mounts the driver's libraries and programs, and runs hooks that make the linker
find them; with this one a container sees its GPUs, but brings the driver's libraries itself or gets
them from elsewhere.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from plugin.nvidia.container.device_nodes import (
    IdStrategy,
    NoAccess,
    PresentNodes,
    device_name,
    device_nodes,
    imex_node,
    unshared,
)
from topology.errors import quote

if TYPE_CHECKING:
    from collections.abc import Iterable

    from plugin.machine import Device, MachineReading

__all__ = [
    "CDI_ANNOTATION_PREFIX",
    "CDI_VENDOR",
    "GPU_CLASS",
    "IMEX_CLASS",
    "CdiDevice",
    "CdiDocument",
    "CdiDocuments",
    "cdi_annotation",
    "cdi_body",
    "cdi_documents",
    "cdi_name",
    "host_path",
    "is_cdi_device",
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
_DEVICE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?")
"""(pkg/parser/parser.go, `ValidateDeviceName`)."""
_OLDEST = "0.3.0"
_WITH_HOST_PATH = "0.5.0"
"""Brought `hostPath`, and names that begin with a digit (SPEC.md, "Released versions")."""
_ANNOTATED_BY = "nvidia-device-plugin"
"""(k8s-device-plugin, internal/plugin/server.go, `getCDIDeviceAnnotations`)."""
_KEY_LENGTH = 32
"""Characters of a digest: with the plugin's name and `_` that makes 53 of the 63 that a key may
have (pkg/cdi/annotations.go, `AnnotationKey`)."""
_NOTHING_MORE = "NVIDIA_VISIBLE_DEVICES=void"
"""Keeps NVIDIA's own runtime from adding what the image or the pod ask for by this variable: often
`all` (toolkit v1.20.1, pkg/nvcdi/wrapper.go, `GetCommonEdits`)."""
_PERMISSIONS = "rw"
"""As NVIDIA's plugin asks for (internal/plugin/server.go, `apiDeviceSpecs`); nobody makes nodes."""


@dataclass(frozen=True, slots=True)
class CdiDevice:
    """A device that can be asked for by name, and the device nodes that it brings."""

    name: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CdiDocument:
    """One specification: devices of a class, and what comes with any of them.

    Paths are those in the container; on the host they lie under `dev_root`.
    """

    cdi_class: str
    devices: tuple[CdiDevice, ...]
    common_nodes: tuple[str, ...] = ()
    common_env: tuple[str, ...] = ()
    dev_root: str = "/"

    @property
    def kind(self) -> str:
        """Vendor and class."""
        return f"{CDI_VENDOR}/{self.cdi_class}"

    @property
    def file_name(self) -> str:
        """As CDI's library makes it of vendor and class (pkg/cdi/spec.go, `GenerateSpecName`)."""
        return f"{CDI_VENDOR}-{self.cdi_class}.json"


@dataclass(frozen=True, slots=True)
class CdiDocuments:
    """All documents of a node; `left_out` tells people which devices are in none, and why."""

    documents: tuple[CdiDocument, ...]
    left_out: tuple[str, ...] = ()


def is_cdi_device(name: str) -> bool:
    """Whether CDI takes this as the name of a device.

    >>> is_cdi_device("GPU-8d3c"), is_cdi_device("0:1"), is_cdi_device("MIG-GPU-8d3c/3/0")
    (True, True, False)
    """
    return _DEVICE.fullmatch(name) is not None


def cdi_name(cdi_class: str, device: str) -> str:
    """The qualified name of a device.

    >>> cdi_name("gpu", "GPU-8d3c")
    'k8s.device-plugin.nvidia.com/gpu=GPU-8d3c'
    """
    return f"{CDI_VENDOR}/{cdi_class}={device}"


def cdi_annotation(prefix: str, asked_for: Iterable[str], names: Iterable[str]) -> dict[str, str]:
    """The annotation that asks for devices by qualified name.

    Its key must differ from that of every other request of the same container; it is made of
    `asked_for`, the kubelet's device ids, which no two requests share.
    """
    digest = hashlib.sha256("\n".join(sorted(asked_for)).encode()).hexdigest()[:_KEY_LENGTH]
    return {f"{prefix}{_ANNOTATED_BY}_{digest}": ",".join(names)}


def host_path(dev_root: str, path: str) -> str:
    """Where a device node of the container lies on the host.

    >>> host_path("/", "/dev/nvidia0"), host_path("/run/nvidia/driver", "/dev/nvidia0")
    ('/dev/nvidia0', '/run/nvidia/driver/dev/nvidia0')
    """
    return posixpath.join(dev_root, path.lstrip("/"))


def cdi_documents(
    devices: Iterable[Device],
    reading: MachineReading,
    present: PresentNodes,
    *,
    strategy: IdStrategy,
    dev_root: str = "/",
) -> CdiDocuments:
    """Describe the devices that are served, and the extras and IMEX channels that are present.

    Each class has a document where anything is in it: one without a device would be invalid.
    """
    described: list[CdiDevice] = []
    left_out: list[str] = []
    for device in unshared(devices):
        name = device_name(device, reading, strategy)
        nodes = device_nodes(device, reading, present)
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
        CdiDocument(GPU_CLASS, tuple(described), present.control, (_NOTHING_MORE,), dev_root),
        CdiDocument(IMEX_CLASS, channels, dev_root=dev_root),
        *(
            CdiDocument(extra.value, (CdiDevice(_ALL, nodes),), dev_root=dev_root)
            for extra, nodes in present.extras.items()
        ),
    )
    return CdiDocuments(tuple(d for d in documents if d.devices), tuple(left_out))


def cdi_body(document: CdiDocument) -> dict[str, object]:
    """Write a document as what its JSON text holds.

    >>> body = cdi_body(CdiDocument("gpu", (CdiDevice("GPU-8d3c", ("/dev/nvidia0",)),)))
    >>> body["cdiVersion"], body["kind"]
    ('0.3.0', 'k8s.device-plugin.nvidia.com/gpu')
    """
    body: dict[str, object] = {
        "cdiVersion": _version(document),
        "kind": document.kind,
        "devices": [
            {"name": device.name, "containerEdits": _edits(device.nodes, document.dev_root)}
            for device in document.devices
        ],
    }
    common = _edits(document.common_nodes, document.dev_root)
    if document.common_env:
        common["env"] = list(document.common_env)
    if common:
        body["containerEdits"] = common
    return body


def _edits(nodes: tuple[str, ...], dev_root: str) -> dict[str, object]:
    if not nodes:
        return {}
    return {"deviceNodes": [_node(node, host_path(dev_root, node)) for node in nodes]}


def _node(path: str, on_host: str) -> dict[str, str]:
    told = {"path": path, "permissions": _PERMISSIONS}
    return told if on_host == path else {**told, "hostPath": on_host}


def _version(document: CdiDocument) -> str:
    begins_with_digit = any(device.name[0].isdigit() for device in document.devices)
    return _WITH_HOST_PATH if begins_with_digit or document.dev_root != "/" else _OLDEST
