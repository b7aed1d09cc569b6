"""A network of its own for this process and all that it starts: addresses, a bridge, pods.

While an `OwnNetwork` is entered, the thread that entered it and the one that starts programs are in
a network namespace in which the test's addresses are free, whatever else runs on the machine, in
other workers too. What was there before is out of reach meanwhile. Nothing is left: the kernel
removes the namespace, with the interfaces in it, after its last process.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.cluster.control.processes import in_starter
from tests.cluster.programs.containerd import PodNetwork

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["HOST", "KUBELET_PORT", "NetworkRefused", "OwnNetwork", "node_address", "pod_network"]

HOST = "192.0.2.1"
"""The machine's own address in there (RFC 5737): of the API server and of the name server."""
KUBELET_PORT = 10250
"""The kubelet's own; each node has an address of its own."""
_BRIDGE = "node0"
_PREFIX = "192.0.2"
_FIRST_NODE = 11
_MOST_NODES = 4
_PODS = "10.244.0.0/16"
_CLONE_NEWNET = 0x40000000  # include/uapi/linux/sched.h
_OWN = Path("/proc/thread-self/ns/net")
_SETTINGS = {"ipv4/ip_forward": "1", "ipv4/conf/all/rp_filter": "0"}
_RUNS_WITHIN_S = 60


class NetworkRefused(Exception):
    """The machine lets us have no network of our own; the message says why."""


class OwnNetwork:
    """One network. A context manager; enter and leave it in the same thread."""

    def __init__(self) -> None:
        self._before = -1
        self.inode = 0
        """By which the kernel names the namespace; 0 before it was there."""

    def __enter__(self) -> Self:
        """Make it and move there. Raises `NetworkRefused`."""
        self._before = os.open(_OWN, os.O_RDONLY)
        try:
            _call("unshare", _CLONE_NEWNET)
            self.inode = _OWN.stat().st_ino
            with _OWN.open("rb") as own:
                in_starter(lambda: _call("setns", own.fileno(), _CLONE_NEWNET))
            _set_up()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Move back."""
        self._leave()

    def _leave(self) -> None:
        in_starter(lambda: _call("setns", self._before, _CLONE_NEWNET))
        _call("setns", self._before, _CLONE_NEWNET)
        os.close(self._before)


def node_address(number: int) -> str:
    """The address of the node of that number, from 0 to 3."""
    return f"{_PREFIX}.{_FIRST_NODE + number}"


def pod_network(folder: Path, programs: Path) -> PodNetwork:
    """The network that the pods of all nodes share; `folder` is where their addresses are noted.

    `programs` is the folder of CNI's plugins. No node is another machine, so one bridge is enough.
    """
    ranges = {"type": "host-local", "ranges": [[{"subnet": _PODS}]], "dataDir": str(folder)}
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "isDefaultGateway": True,
        "hairpinMode": True,  # a Service may lead a pod to itself
        "ipam": ranges,
    }
    return PodNetwork({"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]}, programs)


def _set_up() -> None:
    _run(["ip", "link", "set", "lo", "up"])
    _run(["ip", "link", "add", _BRIDGE, "type", "bridge"])
    for address in (HOST, *map(node_address, range(_MOST_NODES))):
        _run(["ip", "address", "add", f"{address}/24", "dev", _BRIDGE])
    _run(["ip", "link", "set", _BRIDGE, "up"])
    # Programs find their own address by the default route; nothing is behind it.
    _run(["ip", "route", "add", "default", "via", f"{_PREFIX}.254", "dev", _BRIDGE])
    for name, value in _SETTINGS.items():
        Path("/proc/sys/net", name).write_text(value, encoding="utf-8")


def _call(name: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        msg = f"{name}: {os.strerror(ctypes.get_errno())}"
        raise NetworkRefused(msg)


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_RUNS_WITHIN_S
        )
    except FileNotFoundError as error:
        msg = f"{command[0]} (iproute2) is not on PATH"
        raise NetworkRefused(msg) from error
    if done.returncode != 0:
        msg = f"{' '.join(command)}: {done.stderr.strip()}"
        raise NetworkRefused(msg)
