"""Which versions of Kubernetes, etcd and Helm the tests have, and where their modules are pinned.

Returns the pinned Go module of a Kubernetes minor, which programs it makes, and which flags its API
server needs so that all versions offer what Coterie's manifests use. The one place that says a
patch release is the module's own go.mod.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

__all__ = [
    "CNI_PLUGINS",
    "CONTAINERD",
    "COREDNS",
    "DEFAULT_MINOR",
    "ETCD",
    "HELM_MAJORS",
    "HELM_VARIABLE",
    "MINORS",
    "PROMETHEUS",
    "PROMTOOL",
    "VARIABLE",
    "WORKLOAD",
    "GoModule",
    "UnknownVersion",
    "api_server_flags",
    "chosen_helm",
    "chosen_minor",
    "helm_module",
    "kubernetes",
]

MINORS = ("1.36", "1.37", "1.35")
"""The first is the default; `make test-versions` runs the others, in this order."""

DEFAULT_MINOR = MINORS[0]
VARIABLE = "COTERIE_KUBERNETES"

HELM_MAJORS = ("4", "3")
"""The first is the default; `make test-nightly` runs the chart's tests with the other."""
HELM_VARIABLE = "COTERIE_HELM"

_FOLDER = Path(__file__).parents[1] / "modules"
_COMPONENTS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
)


class UnknownVersion(Exception):
    """No module is pinned for that version of Kubernetes or Helm."""


@dataclass(frozen=True, slots=True)
class GoModule:
    """A folder with go.mod and go.sum, and the programs to build from what it requires."""

    folder: Path
    main: str | None
    """Path of the required module that the programs belong to; None where they are our own."""
    packages: dict[str, str]
    """Each program's package, by the file name that it gets."""
    stamps: bool
    """Whether the programs get their version when they are linked."""
    tags: tuple[str, ...] = ()
    """Build tags, which leave out parts of the programs."""

    @property
    def version(self) -> str:
        """The required version, `v1.36.3`; of our own there is only one."""
        if self.main is None:
            return "of this checkout"
        return self._find(rf"{re.escape(self.main)} (v\S+)")

    @property
    def sources(self) -> tuple[Path, ...]:
        """The files that say what is built; the module cache holds the rest."""
        pins = (self.folder / "go.mod", self.folder / "go.sum")
        return (*(pin for pin in pins if pin.exists()), *sorted(self.folder.glob("*.go")))

    @property
    def go(self) -> tuple[int, ...]:
        """The least version of Go that builds it."""
        return tuple(int(part) for part in self._find(r"go ([0-9.]+)").split("."))

    @property
    def link_flags(self) -> str:
        """The linker's flags: no symbols, and the version that the programs report."""
        flags = ["-s", "-w"]
        if self.stamps:
            major, minor, _ = self.version.removeprefix("v").split(".")
            link_values = {
                "gitVersion": self.version,
                "gitMajor": major,
                "gitMinor": minor,
                "gitTreeState": "clean",
            }
            for name, value in link_values.items():
                flags += ["-X", f"k8s.io/component-base/version.{name}={value}"]
        return " ".join(flags)

    def _find(self, pattern: str) -> str:
        text = (self.folder / "go.mod").read_text(encoding="utf-8")
        found = re.search(rf"^\s*(?:require )?{pattern}", text, re.MULTILINE)
        assert found is not None, f"{self.folder / 'go.mod'} has no line {pattern!r}"
        return found[1]


ETCD = GoModule(
    folder=_FOLDER / "etcd-3.6",
    main="go.etcd.io/etcd/server/v3",
    packages={"etcd": "go.etcd.io/etcd/server/v3"},
    stamps=False,
)
CONTAINERD = GoModule(
    folder=_FOLDER / "containerd-2.2",
    main="github.com/containerd/containerd/v2",
    packages={
        name: f"github.com/containerd/containerd/v2/cmd/{name}"
        for name in ("containerd", "containerd-shim-runc-v2", "ctr")
    },
    stamps=False,
)
"""Not the distributions': Debian 12's knows no CDI, and kubelets drop it after 1.37."""

CNI_PLUGINS = GoModule(
    folder=_FOLDER / "cni-plugins-1",
    main="github.com/containernetworking/plugins",
    packages={
        Path(path).name: f"github.com/containernetworking/plugins/plugins/{path}"
        for path in ("ipam/host-local", "main/bridge", "main/loopback")
    },
    stamps=False,
)
"""What gives a pod a network of its own."""

COREDNS = GoModule(
    folder=_FOLDER / "coredns-1",
    main="github.com/coredns/coredns",
    packages={"coredns": "."},
    stamps=False,
)
"""The cluster's name server, with few of its plugins."""

PROMTOOL = GoModule(
    folder=_FOLDER / "prometheus-3",
    main="github.com/prometheus/prometheus",
    packages={"promtool": "github.com/prometheus/prometheus/cmd/promtool"},
    stamps=False,
    tags=("remove_all_sd", "enable_kubernetes_sd"),
)
"""Checks rules and runs their tests. Service discoveries but Kubernetes' are left out: one of them
needs a module that proxies do not serve."""

PROMETHEUS = replace(
    PROMTOOL, packages={"prometheus": "github.com/prometheus/prometheus/cmd/prometheus"}
)
"""The server; built apart, as few tests need it."""

WORKLOAD = GoModule(
    folder=_FOLDER / "workload", main=None, packages={"workload": "."}, stamps=False
)
"""What the containers on a real kubelet run."""


def kubernetes(minor: str) -> GoModule:
    """The module of a Kubernetes minor (`1.36`); raises `UnknownVersion`."""
    if minor not in MINORS:
        msg = f"Kubernetes {minor!r} is not pinned here, expected one of {', '.join(MINORS)}"
        raise UnknownVersion(msg)
    return GoModule(
        folder=_FOLDER / f"kubernetes-{minor}",
        main="k8s.io/kubernetes",
        packages={name: f"k8s.io/kubernetes/cmd/{name}" for name in _COMPONENTS},
        stamps=True,
    )


def helm_module(major: str) -> GoModule:
    """The module of a major version of Helm (`4`); raises `UnknownVersion`."""
    if major not in HELM_MAJORS:
        msg = f"Helm {major!r} is not pinned here, expected one of {', '.join(HELM_MAJORS)}"
        raise UnknownVersion(msg)
    path = f"helm.sh/helm/v{major}"
    return GoModule(
        folder=_FOLDER / f"helm-{major}",
        main=path,
        packages={"helm": f"{path}/cmd/helm"},
        stamps=False,
    )


def chosen_helm() -> str:
    """The major version of Helm that the environment names, else the default."""
    return os.environ.get(HELM_VARIABLE) or HELM_MAJORS[0]


def chosen_minor() -> str:
    """The Kubernetes minor that the environment names, else the default."""
    return os.environ.get(VARIABLE) or DEFAULT_MINOR


def api_server_flags(minor: str) -> tuple[str, ...]:
    """What the API server of that minor needs beyond its defaults.

    MutatingAdmissionPolicy is on and v1 from 1.36, before that off and v1beta1
    (k8s.io/apiserver@v0.36.3/pkg/features/kube_features.go:443-447).
    """
    if minor == "1.35":
        return (
            "--feature-gates=MutatingAdmissionPolicy=true",
            "--runtime-config=admissionregistration.k8s.io/v1beta1=true",
        )
    return ()
