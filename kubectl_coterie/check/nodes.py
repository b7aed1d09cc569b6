"""Whether every node with GPUs has a topology and a report that can be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kube.objects import parse_whole
from kubectl_coterie.check.findings import Finding, Status
from kubectl_coterie.check.names import listed
from kubectl_coterie.installation.interest import has_gpus
from topology.annotations import decode_devices
from topology.errors import CodecError
from topology.model import decode_topology, names, object_at, text_at, texts_at

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from kubectl_coterie.cluster import Object
    from kubectl_coterie.installation.seen import Seen
    from topology.annotations import DevicesReport

__all__ = ["check_devices", "check_topologies"]

CHECK, DEVICES_CHECK = "topologies", "devices"
_SHARED = (
    "keep it so where pods are to share GPUs; for sets let each node offer its GPUs once, without "
    "NVIDIA's time-slicing"
)
_PLUGIN_LOG = "read the log of the node plugin there; plugin and command may differ in version"


def check_topologies(seen: Seen) -> Iterator[Finding]:
    """Of the annotation `coterie.gpu/topology`."""
    if seen.nodes.value is None:
        yield Finding(CHECK, Status.NOT_KNOWN, seen.nodes.missing)
        return
    texts = _texts(seen.nodes.value, names.TOPOLOGY)
    gpu_nodes = [_name(node) for node in seen.nodes.value if has_gpus(node, seen.resources)]
    lacking = sorted(set(gpu_nodes) - set(texts))
    broken = _faults(texts, decode_topology)
    resources = ", ".join(seen.resources)
    if not gpu_nodes:
        todo = "a device plugin must serve them: see the log of its pod on a node with GPUs"
        yield Finding(CHECK, Status.WARNING, f"no node offers {resources}", todo)
    if lacking:
        about = f"{listed(lacking, 'node')} with {resources} and no {names.TOPOLOGY}"
        todo = "without it GPUs are only counted: let the node plugin run there (docs/install.md)"
        yield Finding(CHECK, Status.WARNING, about, todo)
    if broken:
        yield _unreadable(CHECK, names.TOPOLOGY, broken)
    shared = sorted(_shared(seen.nodes.value, seen.resources, texts, broken))
    if shared:
        about = (
            f"{listed(shared, 'node')} with more {resources} than devices in {names.TOPOLOGY}, as "
            "with time-slicing: devices are counted there, and no sets are chosen"
        )
        yield Finding(CHECK, Status.WARNING, about, _SHARED)
    if gpu_nodes and not lacking and not broken and not shared:
        yield Finding(CHECK, Status.OK, f"all {len(gpu_nodes)} nodes with {resources} have one")


def _shared(
    nodes: Sequence[Object],
    resources: Sequence[str],
    texts: Mapping[str, str],
    broken: Collection[str],
) -> Iterator[str]:
    """Nodes that offer more devices than their topologies have."""
    for node in nodes:
        name = _name(node)
        if name not in texts or name in broken:
            continue
        offered = object_at(object_at(node, "status"), "allocatable")
        counts = (parse_whole(offered.get(resource, 0)) or 0 for resource in resources)
        if max(counts) > decode_topology(texts[name]).n_gpus:
            yield name


def check_devices(seen: Seen) -> Iterator[Finding]:
    """Of the annotation `coterie.gpu/devices`."""
    if seen.nodes.value is None:
        yield Finding(DEVICES_CHECK, Status.NOT_KNOWN, seen.nodes.missing)
        return
    texts = _texts(seen.nodes.value, names.DEVICES)
    silent = sorted(set(_texts(seen.nodes.value, names.TOPOLOGY)) - set(texts))
    broken = _faults(texts, decode_devices)
    reports = {
        name: decode_devices(text) for name, text in sorted(texts.items()) if name not in broken
    }
    found = [*_unhealthy(reports), *_without_devices(reports)]
    if silent:
        about = f"{listed(silent, 'node')} with {names.TOPOLOGY} and no {names.DEVICES}"
        found.append(Finding(DEVICES_CHECK, Status.WARNING, about, _PLUGIN_LOG))
    if broken:
        found.append(_unreadable(DEVICES_CHECK, names.DEVICES, broken))
    about = f"{len(reports)} nodes report, and no unhealthy GPU"
    yield from found or [Finding(DEVICES_CHECK, Status.OK, about)]


def _unhealthy(reports: Mapping[str, DevicesReport]) -> Iterator[Finding]:
    bad = {name: report.unhealthy for name, report in reports.items() if report.unhealthy}
    if bad:
        first = next(iter(bad.values()))[0]
        n_gpus = sum(map(len, bad.values()))
        about = f"{n_gpus} unhealthy on {listed(list(bad), 'node')} ({first.id}: {first.reason})"
        todo = "`kubectl coterie nodes --unhealthy` lists them, docs/plugin.md has the faults"
        yield Finding(DEVICES_CHECK, Status.WARNING, about, todo)


def _without_devices(reports: Mapping[str, DevicesReport]) -> Iterator[Finding]:
    pods = {f"{one.namespace}/{one.name}" for report in reports.values() for one in report.missing}
    if pods:
        about = f"{listed(sorted(pods), 'pod')} with a container that runs without its GPUs"
        todo = "delete it, so that its controller makes it again"
        yield Finding(DEVICES_CHECK, Status.FAILED, about, todo)


def _unreadable(check: str, key: str, faults: Mapping[str, str]) -> Finding:
    about = f"{listed(sorted(faults), 'node')}: {key} cannot be read: {faults[min(faults)]}"
    return Finding(check, Status.FAILED, about, _PLUGIN_LOG)


def _faults(texts: Mapping[str, str], decode: Callable[[str], object]) -> dict[str, str]:
    """Why the text of a node cannot be read, for those that cannot."""
    found: dict[str, str] = {}
    for name, text in texts.items():
        try:
            decode(text)
        except CodecError as error:
            found[name] = str(error)
    return found


def _texts(nodes: Sequence[Object], key: str) -> dict[str, str]:
    """The annotation of each node that has it."""
    found = ((_name(one), texts_at(object_at(one, "metadata"), "annotations")) for one in nodes)
    return {name: annotations[key] for name, annotations in found if key in annotations}


def _name(node: Object) -> str:
    return text_at(object_at(node, "metadata"), "name")
