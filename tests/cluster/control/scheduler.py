"""kube-scheduler as a program of a test cluster.

Writes its command line and its completed configuration, and reads its metrics.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from tests.cluster.control.processes import Program

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import httpx

__all__ = ["Scheduler", "completed_config", "plain_config"]

_RELIST_S = 60.0
"""The longest that it waits before it lists again, where the API server dies while it starts: 30 s,
and as much again of jitter (client-go 0.36, tools/cache/reflector.go)."""


@dataclass(kw_only=True)
class Scheduler(Program):
    """A kube-scheduler; `url` is where it serves its health and its metrics."""

    start_within_s: float = 60.0 + _RELIST_S
    url: str
    client: httpx.Client

    def metrics(self) -> str:
        """Its metrics in Prometheus' text format."""
        answer = self.client.get(f"{self.url}/metrics")
        answer.raise_for_status()
        return answer.text


def plain_config() -> dict[str, Any]:
    """Configure a scheduler as it comes: no extender, every default."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
    }


def completed_config(config: str | Mapping[str, object], kubeconfig: Path) -> str:
    """Make the file's text, with `kubeconfig` as the scheduler's own where it names none."""
    content: dict[str, Any] = dict(yaml.safe_load(config) if isinstance(config, str) else config)
    connection = {"kubeconfig": str(kubeconfig)} | dict(content.get("clientConnection", {}))
    return json.dumps(content | {"clientConnection": connection}, indent=2)
