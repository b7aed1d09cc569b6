"""Collects what the kernel shows of a machine: PCI, network and NUMA in /sys, files of /proc, /dev.

Holds what `plugin.sysfs` reads, so that a bundle can be read again, and what a vendor names. What
is missing or cannot be read is left out: `about.json` has the account under which it was read.
"""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING

from plugin.sysfs import read_text

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["device_nodes", "proc_files", "sys_files"]

_PCI = "bus/pci/devices"
_PCI_ID = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_PCI_FILES = (
    "class",
    "vendor",
    "device",
    "numa_node",
    "current_link_speed",
    "current_link_width",
    "max_link_speed",
    "max_link_width",
)
"""Documentation/ABI/testing/sysfs-bus-pci of Linux 6.x."""
_PORTS = ("class/infiniband", "class/net")
_PORT_FILES = ("ports/*/rate", "ports/*/state", "ports/*/link_layer")
"""Documentation/ABI/stable/sysfs-class-infiniband."""
_NODE_FILES = ("devices/system/node/node*/distance", "devices/system/node/node*/cpulist")
_CPU_KEYS = frozenset(
    {
        "vendor_id",
        "cpu family",
        "model",
        "model name",
        "cpu",
        "CPU implementer",
        "CPU architecture",
        "CPU part",
    }
)
"""Keys of /proc/cpuinfo that name a processor; others change from moment to moment, or are its
serial number."""


def sys_files(root: Path) -> dict[str, dict[str, str] | list[str]]:
    """`files`: texts by path; `links`: where links lead, both paths below `root` (/sys).

    `folders` are those of network ports that exist, with or without a port.
    """
    files: dict[str, str] = {}
    links: dict[str, str] = {}
    for entry in _entries(root / _PCI):
        place = _below(root, entry)
        if place is None:
            continue
        links[f"{_PCI}/{entry.name}"] = place
        for name in _PCI_FILES:
            _add(files, f"{place}/{name}", root / place / name)
        owner = _below(root, root / place / "physfn")
        if owner is not None:
            links[f"{place}/physfn"] = owner
    for folder in _PORTS:
        for entry in _entries(root / folder):
            place, device = _below(root, entry), _below(root, entry / "device")
            if place and device and _PCI_ID.fullmatch(device.rpartition("/")[2]):
                links[f"{folder}/{entry.name}"] = place
                links[f"{place}/device"] = device
                _add_matching(files, root, place, _PORT_FILES)
    _add_matching(files, root, "", _NODE_FILES)
    folders = [folder for folder in _PORTS if (root / folder).is_dir()]
    return {"files": files, "links": links, "folders": folders}


def proc_files(root: Path, patterns: Iterable[str]) -> dict[str, str]:
    """Texts by path below `root` (/proc); of /proc/cpuinfo what names the first processor."""
    files: dict[str, str] = {}
    processor, _, _ = (read_text(root / "cpuinfo") or "").partition("\n\n")
    lines = [line for line in processor.splitlines() if line.partition(":")[0].strip() in _CPU_KEYS]
    if lines:
        files["cpuinfo"] = "\n".join(lines)
    _add_matching(files, root, "", patterns)
    return files


def device_nodes(root: Path, patterns: Iterable[str]) -> list[dict[str, object]]:
    """The device nodes below `root`/dev: path, kind, numbers, mode in octal, owner and group."""
    dev = root / "dev"
    paths = {path for pattern in patterns for path in dev.glob(pattern)}
    nodes: list[dict[str, object]] = []
    for path in sorted(paths):
        try:
            found = path.stat()
        except OSError:
            continue
        if stat.S_ISDIR(found.st_mode):
            continue
        nodes.append(
            {
                "path": f"/{path.relative_to(root)}",
                "kind": "char" if stat.S_ISCHR(found.st_mode) else "other",
                "major": os.major(found.st_rdev),
                "minor": os.minor(found.st_rdev),
                "mode": f"{stat.S_IMODE(found.st_mode):04o}",
                "uid": found.st_uid,
                "gid": found.st_gid,
            }
        )
    return nodes


def _add_matching(files: dict[str, str], root: Path, place: str, patterns: Iterable[str]) -> None:
    for pattern in patterns:
        for path in sorted((root / place).glob(pattern)):
            _add(files, str(path.relative_to(root)), path)


def _add(files: dict[str, str], name: str, path: Path) -> None:
    text = read_text(path)
    if text:
        files[name] = text


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _below(root: Path, path: Path) -> str | None:
    """Where a path leads, below `root`; None where it leads nowhere or elsewhere."""
    try:
        return str(path.resolve(strict=True).relative_to(root.resolve()))
    except (OSError, RuntimeError, ValueError):  # RuntimeError: a loop, before Python 3.13
        return None
