"""Coterie's plugin as a process of its own, on a node with a real kubelet.

Says where its probes and metrics are and what it logged. It sees a machine that is a recording;
everything else about it is as on a real node.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx

from tests.cluster.control.processes import Program, free_port

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.node.kubelet_node import KubeletNode

__all__ = ["PluginProcess", "start_plugin"]

_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class PluginProcess:
    """The plugin of one node; `faults` is the file by which its machine is made to fail."""

    program: Program
    url: str
    faults: Path

    def get(self, path: str) -> httpx.Response:
        """Ask one of its plain pages: `/readyz`, `/metrics`."""
        return httpx.get(self.url + path, timeout=_TIMEOUT_S, trust_env=False)

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        """What it logged, one object per line; only the events of that name, if given."""
        lines = self.program.log.read_text(encoding="utf-8", errors="replace").splitlines()
        parsed = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return parsed if name is None else [one for one in parsed if one.get("event") == name]


def start_plugin(
    node: KubeletNode,
    kubeconfig: Path,
    recording: str,
    *flags: str,
    name: str = "plugin",
    status: int = httpx.codes.OK,
) -> PluginProcess:
    """Start `python -m plugin run` there; returns when `/readyz` answers with this status."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    faults = node.folder / f"{name}-faults.json"
    command = [
        *(sys.executable, "-m", "plugin", "run", "--node-name", node.name),
        *("--kubeconfig", str(kubeconfig)),
        *("--kubelet-port", str(node.port), "--kubelet-ca", str(node.folder / "ca.crt")),
        *("--simulate", recording, "--simulate-faults", str(faults)),
        *("--metrics-address", "127.0.0.1", "--metrics-port", str(port)),
        *flags,
    ]
    program = node.start_program(name, command, is_ready=partial(_answers, f"{url}/readyz", status))
    return PluginProcess(program, url, faults)


def _answers(url: str, status: int) -> bool:
    try:
        answer = httpx.get(url, timeout=_TIMEOUT_S, trust_env=False)
    except httpx.HTTPError:
        return False
    return answer.status_code == status
