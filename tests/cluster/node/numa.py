"""A machine with as many NUMA nodes as a test wants, for the kubelet to read.

Makes a folder that, mounted over `/sys/devices/system/node`, shows the kubelet (cadvisor in it,
utils/sysinfo/sysinfo.go) that many NUMA nodes, with the machine's own processors dealt out over
them. Containers and the kernel know nothing of it.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["SYSFS_NODES", "write_numa_nodes"]

SYSFS_NODES = Path("/sys/devices/system/node")
_PROCESSORS = Path("/sys/devices/system/cpu")
_NEAR, _FAR = 10, 21
"""Distances as firmware reports them for a machine with two sockets."""


def write_numa_nodes(folder: Path, count: int) -> None:
    """Write `count` NUMA nodes; neighbouring processors share one."""
    processors = sorted(os.sched_getaffinity(0))
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 1024 // count
    for number in range(count):
        node = folder / f"node{number}"
        (node / "hugepages").mkdir(parents=True)
        first, end = (len(processors) * edge // count for edge in (number, number + 1))
        own = processors[first:end]
        for processor in own:
            (node / f"cpu{processor}").symlink_to(_PROCESSORS / f"cpu{processor}")
        distances = " ".join(str(_NEAR if other == number else _FAR) for other in range(count))
        texts = {
            "cpulist": ",".join(map(str, own)),
            "distance": distances,
            "meminfo": f"Node {number} MemTotal: {pages} kB",
        }
        for name, text in texts.items():
            (node / name).write_text(f"{text}\n", encoding="utf-8")
    for name in ("online", "possible", "has_cpu", "has_memory"):
        (folder / name).write_text(f"0-{count - 1}\n", encoding="utf-8")
