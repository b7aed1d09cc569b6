"""The control plane's programs, built from their Go modules and kept in a cache.

Returns the paths of etcd, kube-apiserver, kube-scheduler and the others, and builds what is not
there yet. The cache is outside the checkout, one folder per content: go.mod, go.sum, flags and Go's
version (see `cache`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.tether import tethered
from tests.cluster.programs.cache import cache_folder, made_once
from tests.cluster.programs.toolchain import find_go, go_environment
from tests.cluster.programs.versions import (
    CNI_PLUGINS,
    CONTAINERD,
    COREDNS,
    ETCD,
    PROMETHEUS,
    PROMTOOL,
    WORKLOAD,
    helm_module,
    kubernetes,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cluster.programs.toolchain import Go
    from tests.cluster.programs.versions import GoModule

__all__ = [
    "Binaries",
    "BuildFailed",
    "NodePrograms",
    "binaries",
    "cni_plugins",
    "coredns",
    "helm",
    "node_programs",
    "prometheus",
    "promtool",
]

_PROGRESS_EVERY_S = 15.0
_TAIL_BYTES = 4000


class BuildFailed(Exception):
    """Go could not build a module; the message holds the end of what it said."""


@dataclass(frozen=True, slots=True)
class Binaries:
    """The programs of one Kubernetes minor, and etcd."""

    minor: str
    version: str
    etcd: Path
    kube_apiserver: Path
    kube_controller_manager: Path
    kube_proxy: Path
    kube_scheduler: Path
    kubectl: Path
    kubelet: Path


def binaries(minor: str, say: Callable[[str], None] | None = None) -> Binaries:
    """The programs of a Kubernetes minor, built if they are not in the cache.

    `say` gets progress in sentences; by default they go to standard error. Raises `BuildFailed`,
    `ToolchainMissing`, `UnknownVersion`.
    """
    say = say or _say
    module = kubernetes(minor)
    components = _built(module, say)
    return Binaries(
        minor=minor,
        version=module.version,
        etcd=_built(ETCD, say) / "etcd",
        kube_apiserver=components / "kube-apiserver",
        kube_controller_manager=components / "kube-controller-manager",
        kube_proxy=components / "kube-proxy",
        kube_scheduler=components / "kube-scheduler",
        kubectl=components / "kubectl",
        kubelet=components / "kubelet",
    )


@dataclass(frozen=True, slots=True)
class NodePrograms:
    """What a real kubelet needs, beside itself and runc, to run containers."""

    containerd: Path
    ctr: Path
    workload: Path
    """The one program in the containers' image."""


def node_programs(say: Callable[[str], None] | None = None) -> NodePrograms:
    """The programs around a real kubelet; progress and errors as `binaries`."""
    say = say or _say
    containerd = _built(CONTAINERD, say)
    return NodePrograms(
        containerd=containerd / "containerd",
        ctr=containerd / "ctr",
        workload=_built(WORKLOAD, say) / "workload",
    )


def cni_plugins(say: Callable[[str], None] | None = None) -> Path:
    """The folder with the programs that give pods a network; progress and errors as `binaries`."""
    return _built(CNI_PLUGINS, say or _say)


def coredns(say: Callable[[str], None] | None = None) -> Path:
    """The name server; progress and errors as `binaries`."""
    return _built(COREDNS, say or _say) / "coredns"


def promtool(say: Callable[[str], None] | None = None) -> Path:
    """The program that checks and tests rules of Prometheus; progress and errors as `binaries`."""
    return _built(PROMTOOL, say or _say) / "promtool"


def helm(major: str, say: Callable[[str], None] | None = None) -> Path:
    """Helm of that major version (`4`); progress and errors as `binaries`."""
    return _built(helm_module(major), say or _say) / "helm"


def prometheus(say: Callable[[str], None] | None = None) -> Path:
    """Prometheus itself; progress and errors as `binaries`."""
    return _built(PROMETHEUS, say or _say) / "prometheus"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - progress of a build is for people


def _built(module: GoModule, say: Callable[[str], None]) -> Path:
    go = find_go(module.go, say)
    folder = cache_folder() / f"{module.folder.name}-{_key(module, go)}"
    return made_once(folder, partial(_build, module, go, say=say), say)


def _key(module: GoModule, go: Go) -> str:
    content = hashlib.sha256()
    for source in module.sources:
        content.update(source.read_bytes())
    content.update(
        repr((sorted(module.packages.items()), module.link_flags, go.version_line)).encode()
    )
    content.update("".join(f" {tag}" for tag in module.tags).encode())
    return content.hexdigest()[:16]


def _build(module: GoModule, go: Go, folder: Path, *, say: Callable[[str], None]) -> None:
    what = f"{', '.join(module.packages)} {module.version}"
    say(f"building {what} with Go {go.version_line}; a first build takes minutes")
    began = time.monotonic()
    (only, *others) = module.packages
    target = f"{folder}/" if others else str(folder / only)
    _go(
        go,
        go_environment(),
        [
            *("build", "-v", "-trimpath", "-ldflags", module.link_flags),
            *(("-tags", ",".join(module.tags)) if module.tags else ()),
            *("-o", target),
            *module.packages.values(),
        ],
        module.folder,
        say,
    )
    missing = [name for name in module.packages if not (folder / name).is_file()]
    if missing:
        msg = f"go build of {what} left out {', '.join(missing)}"
        raise BuildFailed(msg)
    say(f"built {what} in {time.monotonic() - began:.0f} s")


def _go(
    go: Go,
    environment: dict[str, str],
    arguments: list[str],
    cwd: Path,
    say: Callable[[str], None],
) -> None:
    """Run Go in a process group of its own, so that its compilers end with it."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            tethered([str(go.path), *arguments]),
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
        try:
            while process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_PROGRESS_EVERY_S)
                    break
                # `go build -v` prints the name of each package as it is compiled.
                n_lines = os.pread(output.fileno(), 1 << 24, 0).count(b"\n")
                say(f"  {time.monotonic() - began:.0f} s, {n_lines} packages fetched or compiled")
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if process.returncode != 0:
            output.seek(0)
            tail = output.read()[-_TAIL_BYTES:].decode(errors="replace")
            msg = (
                f"go {' '.join(arguments)}\nin {cwd} ended with code {process.returncode}:\n{tail}"
            )
            raise BuildFailed(msg)
