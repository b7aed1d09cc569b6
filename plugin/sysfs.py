"""Reads PCI places, NICs, NUMA nodes and the CPU platform from the kernel (`/sys` and `/proc`).

What is missing or unreadable is unknown.

Method (Linux 6.x, Documentation/ABI/testing/sysfs-bus-pci, sysfs-class-net, sysfs-class-infiniband,
stable/sysfs-devices-node):

- `bus/pci/devices/<id>` is a link into `devices/`, whose path is the PCI tree: the root bus
  (`pci0000:3a`), then every bridge, root port first, then the device. A device directly on the root
  bus, or with nothing above it but root ports that QEMU emulates, has been put there by a
  hypervisor (`topology.importers.xml.pcie_tree`): its place is hidden.
- `numa_node` is -1 where the firmware does not set it.
- RDMA ports are those of `class/infiniband`. Their rate is `ports/<number>/rate`, such as "400
  Gb/sec (4X NDR)", of ports whose `state` is ACTIVE: a port without a link shows a rate too, and
  NCCL takes active ports only (nccl@5067397c src/transport/net_ib.cc). Of several active ports the
  slowest counts, since the device is one NIC here and a ring may pass through any of them.
- Network ports of `class/net` on PCI functions that have none of those come after them, without a
  rate. Virtual functions (`physfn`) belong to their owners, and interfaces without a PCI device are
  software. Which interfaces `class/net` shows depends on the
  network namespace in which sysfs was mounted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from topology.importers.xml.cpu_platform import x86_platform
from topology.importers.xml.nics import MAX_NICS, FoundNic
from topology.importers.xml.pcie_tree import PciPlace
from topology.model import MAX_NIC_GBIT_PER_S, CpuPlatform, normalise_pci_bus_id

__all__ = ["Sysfs", "read_text"]

_ROOT_BUS = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_PCI_ID = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")

_EMULATED_ROOT_PORT = ("0x1b36", "0x000c")
"""PCI ids of QEMU's generic root port (QEMU docs/specs/pci-ids.rst), which libvirt puts above each
device that it passes through. Emulated switches (x3130) are put there on purpose: they count."""

_RATE = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?) Gb/sec\b")

_MAX_TEXT_BYTES = 1 << 16
"""Most of a file that is read: the first processor of /proc/cpuinfo takes 1.5 KiB."""


@dataclass(frozen=True, slots=True)
class Sysfs:
    """The kernel's view of one machine; `sys` and `proc` are where sysfs and procfs are mounted."""

    sys: Path = Path("/sys")
    proc: Path = Path("/proc")

    def place(self, bus_id: str) -> PciPlace | None:
        """Where a PCI device hangs, by its id as `dddd:bb:dd.f`; None where sysfs does not show."""
        device = self.sys / "bus/pci/devices" / _kernel_id(bus_id)
        return self._place_of(device)

    def numa_node(self, bus_id: str) -> int | None:
        """The NUMA node of a PCI device's CPUs; None where the firmware does not set it."""
        return _node(self.sys / "bus/pci/devices" / _kernel_id(bus_id))

    def pci_class(self, bus_id: str) -> str | None:
        """The class of a PCI device as `0x068000`; None where sysfs does not show the device."""
        return read_text(self.sys / "bus/pci/devices" / _kernel_id(bus_id) / "class")

    def boot_id(self) -> str | None:
        """Id of this boot of the kernel (random(4)); None where unreadable."""
        return read_text(self.proc / "sys/kernel/random/boot_id") or None

    def nics(self) -> tuple[FoundNic, ...]:
        """Network ports: RDMA devices by name (digits as numbers), then the others likewise.

        Whether the others are RDMA is unknown where the kernel shows no `class/infiniband` at all.
        """
        rdma_folder = self.sys / "class/infiniband"
        nics = self._ports(rdma_folder, is_rdma=True)
        taken = {mark for nic in nics for mark in (nic.bus_id, nic.name)}
        plain = False if rdma_folder.is_dir() else None
        for nic in self._ports(self.sys / "class/net", is_rdma=plain):
            if taken.isdisjoint((nic.bus_id, nic.name)):
                taken |= {nic.bus_id, nic.name}
                nics.append(nic)
        return tuple(nics[:MAX_NICS])

    def numa_distances(self) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """Each NUMA node with its distances to all, ascending by node; () where unknown."""
        rows: list[tuple[int, tuple[int, ...]]] = []
        for folder in _entries(self.sys / "devices/system/node"):
            match = re.fullmatch(r"node([0-9]{1,4})", folder.name)
            words = (read_text(folder / "distance") or "").split()
            if match and words and all(re.fullmatch(r"[0-9]{1,3}", word) for word in words):
                rows.append((int(match[1]), tuple(map(int, words))))
        return tuple(sorted(rows))

    def cpu(self) -> CpuPlatform:
        """The class of the first processor in /proc/cpuinfo."""
        text = read_text(self.proc / "cpuinfo") or ""
        found = re.findall(r"^([^:\n]+):(.*)$", text, re.MULTILINE)
        fields = {key.strip(): value.strip() for key, value in reversed(found)}
        if "CPU implementer" in fields:
            return CpuPlatform.ARM
        if fields.get("cpu", "").startswith("POWER9"):
            return CpuPlatform.POWER9
        family, model = fields.get("cpu family", ""), fields.get("model", "")
        return x86_platform(
            fields.get("vendor_id"),
            family=int(family) if re.fullmatch(r"[0-9]{1,6}", family) else None,
            model=int(model) if re.fullmatch(r"[0-9]{1,6}", model) else None,
        )

    # --- PCI ---

    def _place_of(self, device: Path) -> PciPlace | None:
        path = _resolve(device)
        if path is None or not _PCI_ID.fullmatch(path.name):
            return None
        parts = path.parts
        roots = [i for i, part in enumerate(parts) if _ROOT_BUS.fullmatch(part)]
        if not roots:
            return None
        # An Intel VMD is a root bus below a PCI device of another.
        root = roots[-1]
        bridges = tuple(part for part in parts[root + 1 : -1] if _PCI_ID.fullmatch(part))
        return PciPlace(
            root=parts[root],
            bridges=bridges,
            numa_node=_node(path),
            is_hidden=all(self._is_emulated(bridge) for bridge in bridges),
        )

    def _is_emulated(self, bridge: str) -> bool:
        device = self.sys / "bus/pci/devices" / bridge
        return (read_text(device / "vendor"), read_text(device / "device")) == _EMULATED_ROOT_PORT

    def _ports(self, folder: Path, *, is_rdma: bool | None) -> list[FoundNic]:
        nics: list[FoundNic] = []
        for entry in _entries(folder):
            device = _resolve(entry / "device")
            place = None if device is None else self._place_of(device)
            if device is None or place is None or (device / "physfn").exists():
                continue
            bus_id = normalise_pci_bus_id(device.name)
            nics.append(FoundNic(entry.name, bus_id, place, is_rdma, _slowest_port(entry)))
        return nics


def _slowest_port(nic: Path) -> float | None:
    """The least rate of the active ports of an RDMA device, Gbit/s; None where there is none."""
    rates = (
        _RATE.match(read_text(port / "rate") or "")
        for port in _entries(nic / "ports")
        if (read_text(port / "state") or "").endswith("ACTIVE")
    )
    known = [float(rate[1]) for rate in rates if rate is not None]
    return min((rate for rate in known if 0 < rate <= MAX_NIC_GBIT_PER_S), default=None)


def _kernel_id(bus_id: str) -> str:
    """The kernel's spelling of a PCI id: four digits of domain, more only where they count.

    >>> _kernel_id("00010000:01:00.0")
    '10000:01:00.0'
    """
    domain, _, rest = normalise_pci_bus_id(bus_id).partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def _resolve(path: Path) -> Path | None:
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError):  # RuntimeError: a loop of links, before Python 3.13
        return None


def read_text(path: Path) -> str | None:
    """The stripped text of a file, the first 64 KiB of it; None where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_MAX_TEXT_BYTES).decode("utf-8", errors="replace").strip()
    except OSError:
        return None


def _node(device: Path) -> int | None:
    text = read_text(device / "numa_node") or ""
    return int(text) if re.fullmatch(r"[0-9]{1,4}", text) else None


def _entries(folder: Path) -> list[Path]:
    """What a folder holds, by name, digits as numbers; nothing where it cannot be read."""
    try:
        return sorted(folder.iterdir(), key=lambda path: _natural(path.name))
    except OSError:
        return []


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(digits or 0), text) for digits, text in re.findall(r"([0-9]+)|([^0-9]+)", name)]
