"""The device manager's own record: which container has which devices, by the uid of its pod.

The kubelet replaces the file `kubelet_internal_checkpoint` in its folder of device plugins at each
allocation (pkg/kubelet/cm/devicemanager/checkpoint/checkpoint.go, 1.36.3). It has what PodResources
lacks: the devices of plain init containers, and the uid of the pod.

The record may be behind: entries of pods that are gone stay until the next allocation makes the
kubelet look (manager.go, `UpdateAllocatedDevices`). Its checksum is not verified: it is a hash over
how Go prints the structures in the kubelet's memory (pkg/util/hash, `DeepHashObject`), which no
other program can print. Only the form is checked here; anything else raises `CheckpointError`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kube.errors import Unreadable
from plugin.errors import CheckpointError
from plugin.pods.admission_order import HeldDevices
from topology.errors import quote
from topology.model import as_object, list_at, needed_at, object_at, objects_at, parse_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from plugin.pods.node_pods import NodePod

__all__ = ["CheckpointEntry", "as_holdings", "match_holdings", "read_checkpoint"]


@dataclass(frozen=True, slots=True)
class CheckpointEntry:
    """The devices of one resource that the container of a pod was given; `ids` are sorted."""

    uid: str
    container: str
    resource: str
    ids: tuple[str, ...]


def read_checkpoint(body: bytes) -> tuple[CheckpointEntry, ...]:
    """Read the file's content, in its order. Raises `CheckpointError`.

    A device that is near several NUMA nodes is listed under each (-1: near none).

    >>> read_checkpoint(
    ...     b'{"Data":{"PodDeviceEntries":[{"PodUID":"u1","ContainerName":"main",'
    ...     b'"ResourceName":"nvidia.com/gpu","DeviceIDs":{"0":["GPU-1"],"1":["GPU-0","GPU-1"]},'
    ...     b'"AllocResp":"aWdub3JlZA=="}],"RegisteredDevices":{}},"Checksum":7}'
    ... )[0].ids
    ('GPU-0', 'GPU-1')
    """
    try:
        data = as_object(parse_object(body).get("Data"), "Data")
        return tuple(_read_entry(one) for one in objects_at(data, "PodDeviceEntries"))
    except Unreadable as error:
        msg = f"checkpoint of the device manager: {error}"
        raise CheckpointError(msg) from error


def as_holdings(
    entries: Iterable[CheckpointEntry], pods: Iterable[NodePod]
) -> tuple[HeldDevices, ...]:
    """Name the pods of the entries, which have uids alone.

    Entries of pods that the kubelet no longer has are left out: no pod holds those devices.
    """
    known = {pod.uid: pod for pod in pods}
    return tuple(
        HeldDevices(pod.namespace, pod.name, one.container, one.resource, one.ids, one.uid)
        for one in entries
        if (pod := known.get(one.uid)) is not None
    )


def match_holdings(
    entries: Iterable[CheckpointEntry], listed: Iterable[HeldDevices]
) -> tuple[HeldDevices, ...]:
    """Name the pods of the entries by holdings without uids, as PodResources lists them.

    A device is one pod's at a time, so an entry and a holding with the same container, resource and
    ids are of the same pod; that names the entries of its init containers too. Entries of pods with
    no such holding are left out: either it is over, or plain init containers alone hold them.

    >>> entry = CheckpointEntry("u1", "main", "nvidia.com/gpu", ("GPU-0",))
    >>> match_holdings([entry], [HeldDevices("ns", "a", "main", "nvidia.com/gpu", ("GPU-0",))])[
    ...     0
    ... ].uid
    'u1'
    """
    every = tuple(entries)
    owners = {(one.container, one.resource, one.ids): (one.namespace, one.name) for one in listed}
    names = {
        one.uid: owner
        for one in every
        if (owner := owners.get((one.container, one.resource, one.ids))) is not None
    }
    return tuple(
        HeldDevices(*names[one.uid], one.container, one.resource, one.ids, one.uid)
        for one in every
        if one.uid in names
    )


def _read_entry(content: Mapping[str, object]) -> CheckpointEntry:
    by_numa_node = object_at(content, "DeviceIDs")
    ids = sorted({_id(one) for key in by_numa_node for one in list_at(by_numa_node, key)})
    if not ids:
        msg = f"DeviceIDs is {quote(by_numa_node)}, expected at least one id"
        raise Unreadable(msg)
    return CheckpointEntry(
        uid=needed_at(content, "PodUID"),
        container=needed_at(content, "ContainerName"),
        resource=needed_at(content, "ResourceName"),
        ids=tuple(ids),
    )


def _id(value: object) -> str:
    if not isinstance(value, str) or not value:
        msg = f"device id is {quote(value)}, expected a string"
        raise Unreadable(msg)
    return value
