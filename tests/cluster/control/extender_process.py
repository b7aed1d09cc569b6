"""Coterie's extender as a process of its own, on the live API server.

Says where it listens, what it logged and what its metrics are. It keeps its port over a kill and a
restart, as kube-scheduler's configuration names it.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx

from tests.cluster.control.processes import Program

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["ExtenderProcess", "extender_command"]


@dataclass(kw_only=True)
class ExtenderProcess(Program):
    """The extender; `url` is what kube-scheduler calls, `health_url` where its probes are."""

    url: str
    health_url: str

    def get(self, path: str) -> httpx.Response:
        """Ask one of its plain pages: `/readyz`, `/metrics`, `/state`."""
        return httpx.get(self.health_url + path, timeout=30, trust_env=False)

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        """What it logged, one object per line; only the events of that name, if given."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        parsed = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return parsed if name is None else [one for one in parsed if one.get("event") == name]


def extender_command(kubeconfig: Path, port: int, flags: Sequence[str]) -> list[str]:
    """Run `python -m extender serve` against that cluster, on that port of 127.0.0.1."""
    return [
        *(sys.executable, "-m", "extender", "serve", "--kubeconfig", str(kubeconfig)),
        *("--listen-address", "127.0.0.1", "--listen-port", str(port), *flags),
    ]
