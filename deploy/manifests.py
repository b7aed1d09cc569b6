"""The manifests that kubectl applies, rendered from the chart by Helm: `make manifests`.

Each file of values in `chart/ci` makes one manifest of its name: a whole way to run Coterie, or a
part that is applied after one. Names and namespaces are those of the documentation. Nothing that it
writes is committed; it never talks to a cluster.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "CHART",
    "NAMESPACE",
    "PARTS",
    "WAYS",
    "HelmMissing",
    "RenderFailed",
    "find_helm",
    "render",
]

CHART = Path(__file__).with_name("chart")
NAMESPACE = "coterie-system"
WAYS = ("audit", "second-scheduler", "service", "kubeadm")
"""Whole ways, each with the node plugin as a reporter."""
_PLUGIN = ("plugin/daemonset.yaml",)
PARTS = {
    "device-plugin": _PLUGIN,
    "gpu-operator": _PLUGIN,
    "openshift": (*_PLUGIN, "plugin/security-context-constraints.yaml"),
    "simulated": _PLUGIN,
    "scheduler-name": ("scheduler/scheduler-name.yaml",),
    "scheduler-name-required": ("scheduler/scheduler-name.yaml",),
    "monitoring": (
        *("monitoring/dashboards.yaml", "monitoring/pod-monitor.yaml", "monitoring/rules.yaml"),
    ),
}
"""Parts, with the chart's templates that make them. Four are the DaemonSet, in place of a way's."""
_RELEASE = "coterie"
UNSET = "set-your-registry.invalid"
"""A registry that never resolves (RFC 2606, section 2)."""
_API_VERSIONS = (
    "monitoring.coreos.com/v1",
    "admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy",
)
_OF_HELM = re.compile(
    r"^    (?:app\.kubernetes\.io/managed-by: Helm|helm\.sh/chart: .*)\n", re.MULTILINE
)
"""Labels that are not true of what kubectl applies."""


class HelmMissing(Exception):
    """There is no Helm, and none can be built; the message says what to do."""


class RenderFailed(Exception):
    """Helm refused; the message is what it said."""


def find_helm() -> Path:
    """Helm from PATH, else built from its Go module, in minutes. Raises `HelmMissing`."""
    if found := shutil.which("helm"):
        return Path(found)
    from tests.cluster.programs.build import BuildFailed, helm  # noqa: PLC0415 - needs Go
    from tests.cluster.programs.toolchain import ToolchainMissing  # noqa: PLC0415 - as above
    from tests.cluster.programs.versions import chosen_helm  # noqa: PLC0415 - as above

    try:
        return helm(chosen_helm())
    except (BuildFailed, ToolchainMissing) as error:
        msg = f"helm is not on the PATH, expected Helm 3 or 4, and none can be built: {error}"
        raise HelmMissing(msg) from error


def render(helm: Path, name: str, *values: str, kubernetes: str) -> str:
    """The objects of a way or a part, as YAML; raises `RenderFailed`.

    `values` are further arguments of Helm, as `--set` and what it sets; `kubernetes` is the version
    of the API server (`v1.36.3`), which kube-scheduler's image is of.
    """
    shown = [f"templates/{one}" for one in PARTS.get(name, ())]
    command: list[str | Path] = [
        *(helm, "template", _RELEASE, CHART, "--namespace", NAMESPACE, "--skip-tests"),
        *("--kube-version", kubernetes, "--values", CHART / "ci" / f"{name}.yaml"),
        *(word for one in _API_VERSIONS for word in ("--api-versions", one)),
        *(word for one in shown for word in ("--show-only", one)),
        *("--set", f"createNamespace={str(name not in {'audit', 'kubeadm'}).lower()}", *values),
    ]
    done = subprocess.run(  # noqa: S603 - the caller's Helm, without a shell
        command, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        msg = f"helm template of {name} ended with code {done.returncode}: {done.stderr.strip()}"
        raise RenderFailed(msg)
    return _OF_HELM.sub("", done.stdout)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write all of them; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m deploy.manifests", description=main.__doc__)
    parser.add_argument("--output", type=Path, default=Path("dist/manifests"), metavar="FOLDER")
    parser.add_argument("--registry", default=UNSET, help="Registry that the images are in.")
    parser.add_argument("--tag", default="latest", help="Tag of both images.")
    parser.add_argument(
        "--values",
        action="append",
        default=[],
        metavar="FILE",
        help="Values of your own for the whole ways, as for `helm install`; may be given again.",
    )
    parser.add_argument(
        "--kubernetes", default="v1.36.3", metavar="VERSION", help="That of the API server."
    )
    given = parser.parse_args(arguments)
    images = ("--set-string", f"image.registry={given.registry},image.tag={given.tag}")
    own = tuple(word for one in given.values for word in ("--values", one))
    try:
        helm = find_helm()
        made = {
            name: render(helm, name, *values, *images, kubernetes=given.kubernetes)
            for names, values in ((WAYS, own), (PARTS, ()))
            for name in names
        }
    except (HelmMissing, RenderFailed) as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - for people
        return 1
    given.output.mkdir(parents=True, exist_ok=True)
    for name, text in made.items():
        (given.output / f"{name}.yaml").write_text(text, encoding="utf-8")
        print(given.output / f"{name}.yaml")  # noqa: T201 - what was written
    return 0


if __name__ == "__main__":
    sys.exit(main())
