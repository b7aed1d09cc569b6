"""A CDI specification: the document by which a container runtime adds devices.

The rules are those of the Container Device Interface, SPEC.md v1.1.0 and the library that runtimes
check files with (container-device-interface v1.1.1, pkg/parser/parser.go, specs-go/version.go). A
document states the lowest version whose fields it uses: a runtime refuses every version that it
does not know.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

__all__ = ["CdiDevice", "CdiDocument", "cdi_body", "host_path", "is_cdi_device"]

_DEVICE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?")
"""(pkg/parser/parser.go, `ValidateDeviceName`)."""
_OLDEST = "0.3.0"
_WITH_HOST_PATH = "0.5.0"
"""Brought `hostPath`, and names that begin with a digit (SPEC.md, "Released versions")."""
_PERMISSIONS = "rw"
"""A container uses the nodes that are there and makes none (`m`), as k8s-device-plugin has it
(internal/plugin/server.go, `apiDeviceSpecs`)."""


@dataclass(frozen=True, slots=True)
class CdiDevice:
    """A device that a container can request by name, and the device nodes that it brings."""

    name: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CdiDocument:
    """One specification: devices of a vendor's class, and what comes with any of them.

    `vendor` is a domain name. Paths are those in the container; on the host they lie under
    `dev_root`.
    """

    vendor: str
    cdi_class: str
    devices: tuple[CdiDevice, ...]
    common_nodes: tuple[str, ...] = ()
    common_env: tuple[str, ...] = ()
    dev_root: str = "/"

    @property
    def kind(self) -> str:
        """Vendor and class."""
        return f"{self.vendor}/{self.cdi_class}"

    @property
    def file_name(self) -> str:
        """As CDI's library makes it of vendor and class (pkg/cdi/spec.go, `GenerateSpecName`)."""
        return f"{self.vendor}-{self.cdi_class}.json"


def is_cdi_device(name: str) -> bool:
    """Whether CDI takes this as the name of a device.

    >>> is_cdi_device("GPU-8d3c"), is_cdi_device("0:1"), is_cdi_device("GPU-8d3c/3/0")
    (True, True, False)
    """
    return _DEVICE.fullmatch(name) is not None


def host_path(dev_root: str, path: str) -> str:
    """Where a device node of the container lies on the host.

    >>> host_path("/", "/dev/nvidia0"), host_path("/run/nvidia/driver", "/dev/nvidia0")
    ('/dev/nvidia0', '/run/nvidia/driver/dev/nvidia0')
    """
    return posixpath.join(dev_root, path.lstrip("/"))


def cdi_body(document: CdiDocument) -> dict[str, object]:
    """A document as what its JSON text holds.

    >>> body = cdi_body(
    ...     CdiDocument("gpu.example", "gpu", (CdiDevice("GPU-8d3c", ("/dev/nvidia0",)),))
    ... )
    >>> body["cdiVersion"], body["kind"]
    ('0.3.0', 'gpu.example/gpu')
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
    node = {"path": path, "permissions": _PERMISSIONS}
    return node if on_host == path else {**node, "hostPath": on_host}


def _version(document: CdiDocument) -> str:
    begins_with_digit = any(device.name[0].isdigit() for device in document.devices)
    return _WITH_HOST_PATH if begins_with_digit or document.dev_root != "/" else _OLDEST
