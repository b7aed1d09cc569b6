"""Whether the node plugin runs: its pods, and DaemonSets that choose no node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubectl_coterie.check.findings import Finding, Status
from kubectl_coterie.check.names import listed
from topology.model import object_at, texts_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kubectl_coterie.installation.daemon_sets import PluginDaemonSet
    from kubectl_coterie.installation.programs import ProgramPod
    from kubectl_coterie.installation.seen import Seen

__all__ = ["check_plugins", "pods_ready"]

CHECK = "node plugin"
_LABEL = "coterie.gpu/agent"
_TODO = {
    "nvidia.com/gpu.deploy.client": "GPU operators before v26.7 do not set it: set the chart's "
    "plugin.gpuOperator.clientLabel to nvidia.com/gpu.deploy.gpu-feature-discovery, or that label "
    "in a patch of the DaemonSet's nodeSelector",
    "nvidia.com/gpu.deploy.operator-validator": "the GPU operator sets it on nodes whose GPUs it "
    "runs: without the operator set the chart's plugin.profile to nvidia-device-plugin",
    "coterie.gpu/simulated": "kubectl label node NODE coterie.gpu/simulated=true",
}
"""What to do about a label that no node has (deploy/chart/templates/plugin)."""


def check_plugins(seen: Seen) -> Iterator[Finding]:
    """The node plugin's pods, and DaemonSets of it that choose no node."""
    idle = [one for one in seen.daemon_sets.value or () if not one.n_nodes]
    for one in idle:
        yield _chooses_none(one, seen)
    if seen.programs.value is None:
        yield Finding(CHECK, Status.NOT_KNOWN, seen.programs.missing)
    elif seen.plugins:
        yield from pods_ready(CHECK, seen.plugins, "node plugin")
    elif not idle:
        about = "no pod of the node plugin was found: nothing publishes topologies"
        todo = "install it (docs/install.md); a reporter changes nothing on the nodes"
        yield Finding(CHECK, Status.WARNING, about, todo)


def pods_ready(check: str, programs: Sequence[ProgramPod], what: str) -> Iterator[Finding]:
    """Whether the pods of a program are ready; those that are not are named with their reason."""
    if not programs:
        return
    n_ready = sum(program.is_ready for program in programs)
    about = f"{n_ready} of {len(programs)} pods of the {what} are ready"
    if n_ready == len(programs):
        yield Finding(check, Status.OK, about)
        return
    bad = [program for program in programs if not program.is_ready]
    reasons = [program.waits for program in bad if program.waits]
    because = f" ({reasons[0]})" if reasons else ""
    first = bad[0]
    yield Finding(
        check,
        Status.WARNING if n_ready else Status.FAILED,
        f"{about}, not {listed([program.where for program in bad], 'pod')}{because}",
        f"kubectl -n {first.namespace} describe pod {first.pod}",
    )


def _chooses_none(daemon_set: PluginDaemonSet, seen: Seen) -> Finding:
    """Of a DaemonSet that is for no node: the labels that are missing."""
    about = f"DaemonSet {daemon_set.where} chooses no node (DESIRED is 0)"
    if seen.nodes.value is None:
        wanted = _words([*daemon_set.selector.items(), *daemon_set.any_of])
        todo = f"it is for nodes with labels of these: {wanted}"
        return Finding(CHECK, Status.WARNING, about, todo)
    there = {
        pair
        for node in seen.nodes.value
        for pair in texts_at(object_at(node, "metadata"), "labels").items()
    }
    absent = [pair for pair in daemon_set.selector.items() if pair not in there]
    if absent:
        todo = next((_TODO[key] for key, _ in absent if key in _TODO), "")
        what = f"{about}: no node has label {_words(absent)}"
        return Finding(CHECK, Status.WARNING, what, todo or _own_labels(absent))
    if daemon_set.any_of and not there.intersection(daemon_set.any_of):
        todo = next((_TODO[key] for key, _ in daemon_set.any_of if key in _TODO), "")
        what = f"{about}: no node has any of the labels {_words(daemon_set.any_of)}"
        return Finding(CHECK, Status.WARNING, what, todo or _own_label(daemon_set))
    about += ": no node has all the labels that it selects and only taints that it tolerates"
    return Finding(
        CHECK,
        Status.WARNING,
        about,
        f"kubectl -n {daemon_set.namespace} describe daemonset {daemon_set.name}",
    )


def _own_labels(absent: Sequence[tuple[str, str]]) -> str:
    return f"kubectl label node NODE {' '.join(f'{key}={value}' for key, value in absent)}"


def _own_label(daemon_set: PluginDaemonSet) -> str:
    """The label that is there to be set by hand, where the DaemonSet looks for it."""
    if (_LABEL, "true") in daemon_set.any_of:
        return f"on each GPU node: kubectl label node NODE {_LABEL}=true"
    return "set one of them on each GPU node"


def _words(labels: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{key}={value}" for key, value in labels)
