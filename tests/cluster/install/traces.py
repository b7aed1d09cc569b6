"""What a stage would leave on the machine: processes, mounts, control groups, folders.

Finds what is still there of one stage and of no other: others run beside it. It also makes the
folder in which CNI notes pods, where the machine has none, and removes it after its last user.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster.node.kubelet_node import CNI_CACHE

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Traces", "cni_cache", "network_links"]

_MADE = b"made\n"


@dataclass(frozen=True, slots=True)
class Traces:
    """Where a stage is to be seen on the machine."""

    network: int
    """The inode of its network namespace."""
    folders: tuple[Path, ...]
    """Of its nodes: files, control groups."""
    links: frozenset[str]
    """The machine's own network interfaces before it began."""

    def left(self) -> list[str]:
        """What of it is there, one sentence each; to be called outside of its network."""
        found = [f"process {pid} is in its network" for pid in _processes(self.network)]
        found += [f"{folder} is there" for folder in self.folders if folder.exists()]
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
        found += [
            f"mount {line}" for line in mounts if any(str(one) in line for one in self.folders)
        ]
        found += [f"network interface {name}" for name in sorted(network_links() - self.links)]
        return found


def network_links() -> frozenset[str]:
    """The interfaces of the network that this thread is in."""
    lines = Path("/proc/thread-self/net/dev").read_text(encoding="utf-8").splitlines()
    return frozenset(line.partition(":")[0].strip() for line in lines[2:])


def _processes(network: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                inode = (entry / "ns" / "net").stat().st_ino
            except OSError:  # it has ended meanwhile
                continue
            if inode == network:
                found.append(int(entry.name))
    return found


@contextmanager
def cni_cache() -> Iterator[None]:
    """Have CNI's folder on the machine, for nodes to mount their own over; see `KubeletNode`.

    Removing it would take it away below the mounts of others, so only the last user does, and only
    if it was made here. It stays, empty, after a test that was killed.
    """
    path = Path(tempfile.gettempdir()) / f"coterie-cni-{os.geteuid()}"
    with path.open("a+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        if not CNI_CACHE.exists():
            CNI_CACHE.mkdir(parents=True, exist_ok=True)
            lock.write(_MADE)
            lock.flush()
        try:
            yield
        finally:
            _remove_after_last(lock.fileno())


def _remove_after_last(lock: int) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    if os.fstat(lock).st_size:
        CNI_CACHE.rmdir()
        os.ftruncate(lock, 0)
