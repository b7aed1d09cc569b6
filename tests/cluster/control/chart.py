"""The chart as Helm renders it: its objects, or the sentence by which Helm refuses the values."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from tests.cluster.control.manifests import DEPLOY

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["CHART", "Helm", "HelmFailed"]

CHART = DEPLOY / "chart"
_DEADLINE_S = 600


class HelmFailed(Exception):
    """Helm said no; the message is what it said."""


@dataclass(frozen=True, slots=True)
class Helm:
    """Helm with a home of its own, and the cluster that it talks to, if any."""

    program: Path
    home: Path
    kubeconfig: Path | None = None

    def run(self, *arguments: str) -> str:
        """Run it; its standard output. Raises `HelmFailed`."""
        environment = {"HOME": str(self.home), "PATH": os.environ["PATH"]}
        if self.kubeconfig is not None:
            environment["KUBECONFIG"] = str(self.kubeconfig)
        done = subprocess.run(
            [self.program, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=_DEADLINE_S,
        )
        if done.returncode != 0:
            msg = f"helm {' '.join(arguments)}: {done.stderr}"
            raise HelmFailed(msg)
        return done.stdout

    def objects(
        self,
        *arguments: str,
        release: str = "coterie",
        namespace: str = "coterie-system",
        kubernetes: str = "v1.36.3",
    ) -> list[dict[str, Any]]:
        """The objects of the chart, without a cluster; hooks are left out. Raises `HelmFailed`."""
        text = self.run(
            *("template", release, str(CHART), "--namespace", namespace),
            *("--kube-version", kubernetes, "--skip-tests", *arguments),
        )
        return [one for one in yaml.safe_load_all(text) if one is not None]
