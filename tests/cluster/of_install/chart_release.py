"""A release of the chart on a stage, as somebody installs it who reads docs/install.md.

Runs Helm and the pages' own commands, and says what a release leaves in the cluster. Names and
namespaces are those of the documentation.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.cluster.control.chart import CHART
from tests.cluster.programs.build import helm
from tests.cluster.programs.versions import chosen_helm
from tests.docs.markdown import ROOT, blocks

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.install.stage import InstallStage

__all__ = ["NODE", "RELEASE", "SYSTEM", "ChartRelease", "documented", "run_documented"]

RELEASE, SYSTEM, NODE = "coterie", "coterie-system", "coterie-node"
"""The release, its namespace, and that of the node plugin."""
_WITHIN_S = 180
_ROLLS_BACK = {"3": "--atomic", "4": "--rollback-on-failure"}
_KINDS = (
    *("pods", "deployments", "daemonsets", "replicasets", "services", "configmaps", "secrets"),
    *("serviceaccounts", "roles", "rolebindings", "networkpolicies", "poddisruptionbudgets"),
    *("clusterroles", "clusterrolebindings", "namespaces", "validatingadmissionpolicies"),
    *("validatingadmissionpolicybindings", "mutatingadmissionpolicies", "leases", "endpointslices"),
    "mutatingadmissionpolicybindings",
)


@dataclass(frozen=True, slots=True)
class ChartRelease:
    """The release `coterie`, with the stage's images on its nodes with simulated GPUs."""

    stage: InstallStage

    def install(self, *arguments: str, **values: str) -> str:
        """Install the chart and wait until all is ready; what Helm says. Raises `HelmFailed`.

        `values` are paths with `__` in the place of dots; so are those of `upgrade`.
        """
        given = {**self.stage.image_values(), "plugin.profile": "simulated", **_paths(values)}
        wait = ("--wait", f"--timeout={_WITHIN_S}s", *arguments)
        with self.stage.timed(f"helm install {values}"):
            return self._run("install", *_set(given), *wait)

    def upgrade(self, *arguments: str, **values: str) -> str:
        """Change these values and wait until all is ready. Raises `HelmFailed`."""
        wait = ("--wait", f"--timeout={_WITHIN_S}s", "--reset-then-reuse-values", *arguments)
        with self.stage.timed(f"helm upgrade {values}"):
            return self._run("upgrade", *_set(_paths(values)), *wait)

    def upgrade_or_roll_back(self, within_s: int, **values: str) -> str:
        """The same, undone by Helm where not all is ready in time. Raises `HelmFailed`."""
        return self.upgrade(_ROLLS_BACK[chosen_helm()], f"--timeout={within_s}s", **values)

    def test(self) -> str:
        """`helm test`; raises `HelmFailed` with what its pod says."""
        with self.stage.timed("helm test"):
            return self.stage.helm("test", RELEASE, "--namespace", SYSTEM, "--logs")

    def uninstall(self) -> None:
        """Uninstall it and wait until its objects are gone."""
        with self.stage.timed("helm uninstall"):
            self.stage.helm("uninstall", RELEASE, "--namespace", SYSTEM, "--wait")

    def objects(self) -> list[str]:
        """All of Coterie's in the cluster, as `kind/name`, the test's own pods excepted."""
        served = [kind for kind in _KINDS if kind in self._served()]
        found = self.stage.kubectl("get", ",".join(served), "--all-namespaces", "-o", "name")
        return sorted(one for one in found.split() if "coterie" in one)

    def images(self) -> list[str]:
        """The images of its pods' containers, sorted, each once."""
        return sorted({one["image"] for pod in self._pods() for one in pod["spec"]["containers"]})

    def restarts(self) -> int:
        """How often a container of its pods was started again."""
        statuses = [one for pod in self._pods() for one in pod["status"]["containerStatuses"]]
        return sum(one["restartCount"] for one in statuses)

    def _pods(self) -> list[dict[str, Any]]:
        paths = (f"/api/v1/namespaces/{namespace}/pods" for namespace in (SYSTEM, NODE))
        return [pod for path in paths for pod in self.stage.get(path)["items"]]

    def _served(self) -> set[str]:
        listed = self.stage.kubectl("api-resources", "--verbs=list", "-o", "name")
        return {one.partition(".")[0] for one in listed.split()}

    def _run(self, command: str, *arguments: str) -> str:
        return self.stage.helm(command, RELEASE, str(CHART), "--namespace", SYSTEM, *arguments)


def _paths(values: dict[str, str]) -> dict[str, str]:
    return {name.replace("__", "."): value for name, value in values.items()}


def _set(values: dict[str, str]) -> list[str]:
    return [
        word
        for name, value in values.items()
        for word in (("--set-string" if name.endswith("tag") else "--set"), f"{name}={value}")
    ]


def documented(page: str, containing: str, **replaced: str) -> str:
    """The one code block of a page of docs/ with these words in it, with other words replaced."""
    found = [one.text for one in blocks(ROOT / "docs" / page) if containing in one.text]
    assert len(found) == 1, f"docs/{page} has {len(found)} blocks with {containing!r}, expected 1"
    (text,) = found
    for old, new in replaced.items():
        text = text.replace(old.replace("__", "-"), new)
    return text


def run_documented(stage: InstallStage, folder: Path, text: str) -> str:
    """What a block of a page prints, with kubectl, Helm and deploy/ at hand; it must succeed."""
    (programs := folder / "bin").mkdir(parents=True, exist_ok=True)
    for link, target in (
        (programs / "kubectl", stage.control_plane.binaries.kubectl),
        (programs / "helm", helm(chosen_helm())),
        (folder / "deploy", CHART.parent),
    ):
        if not link.exists():
            link.symlink_to(target)
    environment: dict[str, Any] = {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "KUBECONFIG": str(stage.control_plane.admin),
        "NS": NODE,
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * _WITHIN_S,
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
    return done.stdout
