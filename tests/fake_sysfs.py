"""Writes a /sys and a /proc into a temporary folder: folders, files and links as the kernel's."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from plugin.sysfs import Sysfs
from topology.model import PcieLevel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from topology.model import NodeTopology

__all__ = ["FakeSysfs", "write_machine"]

_NIC_CLASS = "0x020700"
_GPU_CLASS = "0x030200"
_BRIDGE_CLASS = "0x060400"


@dataclass
class FakeSysfs:
    """The files of one machine below `root`."""

    root: Path

    @property
    def reader(self) -> Sysfs:
        """What reads them."""
        return Sysfs(sys=self.root / "sys", proc=self.root / "proc")

    def device(
        self,
        bus: str,
        *path: str,
        numa: int = -1,
        pci_class: str = _GPU_CLASS,
        ids: tuple[str, str] = ("0x10de", "0x2330"),
        bridge_ids: tuple[str, str] = ("0x1000", "0xc030"),
    ) -> Path:
        """A device at the end of `path`, with the bridges before it, on a root bus `pci0000:00`."""
        folder = self.root / "sys/devices" / bus
        for place, name in enumerate(path):
            folder /= name
            is_device = place == len(path) - 1
            folder.mkdir(parents=True, exist_ok=True)
            vendor, device = ids if is_device else bridge_ids
            self._write(folder / "vendor", vendor)
            self._write(folder / "device", device)
            self._write(folder / "class", pci_class if is_device else _BRIDGE_CLASS)
            self._write(folder / "numa_node", str(numa))
            self._link(self.root / "sys/bus/pci/devices" / name, folder)
        return folder

    def port(
        self, kind: str, name: str, device: Path | None, *links: tuple[str | None, str | None]
    ) -> None:
        """A port of class `infiniband` or `net`; without a device it is software.

        `links`: state and rate of each physical port, from 1 on; None where the file is not there.
        """
        parent = self.root / "sys/devices/virtual" if device is None else device
        folder = parent / kind / name
        folder.mkdir(parents=True)
        if device is not None:
            self._link(folder / "device", device)
        self._link(self.root / "sys/class" / kind / name, folder)
        for number, link in enumerate(links, start=1):
            for file, text in zip(("state", "rate"), link, strict=True):
                if text is not None:
                    self._write(folder / "ports" / str(number) / file, text)

    def numa(self, distances: Mapping[int, str]) -> None:
        """NUMA nodes and their rows of distances."""
        for node, row in distances.items():
            self._write(self.root / f"sys/devices/system/node/node{node}/distance", row)

    def cpuinfo(self, text: str) -> None:
        """/proc/cpuinfo."""
        self._write(self.root / "proc/cpuinfo", text)

    @staticmethod
    def _write(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")

    @staticmethod
    def _link(path: Path, target: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_symlink():
            path.symlink_to(os.path.relpath(target, path.parent))


def write_machine(
    fake: FakeSysfs, topology: NodeTopology, gpu_bus_id: Callable[[int], str]
) -> None:
    """The PCI tree of a recorded machine: what is known to be near shares switch, port or root."""
    n = topology.n_gpus
    switches = _classes(topology, PcieLevel.PIX)
    ports = _classes(topology, PcieLevel.PXB)
    roots = _classes(topology, PcieLevel.PHB)
    nodes = _classes(topology, PcieLevel.NODE)
    numa_of = {
        nodes[i]: gpu.numa_node for i, gpu in enumerate(topology.gpus) if gpu.numa_node is not None
    }
    for thing in range(n + len(topology.nics)):
        switch, port, root = switches[thing], ports[thing], roots[thing]
        name = gpu_bus_id(thing) if thing < n else f"0001:{thing:02x}:00.0"
        folder = fake.device(
            f"pci0002:{root:02x}",
            f"0003:{port:02x}:00.0",
            f"0004:{port:02x}:00.0",
            f"0005:{switch:02x}:00.0",
            f"0006:{switch:02x}:00.0",
            f"0007:{thing:02x}:00.0",
            name,
            numa=numa_of.get(nodes[thing], 100 + nodes[thing]),
            pci_class=_GPU_CLASS if thing < n else _NIC_CLASS,
        )
        if thing >= n:
            nic = topology.nics[thing - n]
            rate = nic.gbit_per_s
            link = ("1: DOWN", "10 Gb/sec (4X SDR)") if rate is None else _active(rate)
            fake.port("infiniband", nic.name, folder, link)


def _active(gbit_per_s: float) -> tuple[str, str]:
    return "4: ACTIVE", f"{gbit_per_s:g} Gb/sec (4X NDR)"


def _classes(topology: NodeTopology, farthest: PcieLevel) -> Sequence[int]:
    """For GPUs, then NICs: the least of those that are within a level of each other."""
    n = topology.n_gpus
    mark = list(range(n + len(topology.nics)))
    near = [(i, j) for i, j in product(range(n), range(n)) if _is(topology.pcie[i][j], farthest)]
    near += [
        (i, n + j)
        for j, nic in enumerate(topology.nics)
        for i in range(n)
        if _is(nic.levels[i], farthest)
    ]
    for a, b in near:
        old, new = max(mark[a], mark[b]), min(mark[a], mark[b])
        mark = [new if m == old else m for m in mark]
    return mark


def _is(level: PcieLevel, farthest: PcieLevel) -> bool:
    return level is not PcieLevel.UNKNOWN and level.rank <= farthest.rank
