"""Reads an installation: what the checks look at and a support bundle begins with.

What may not be read is left out with its reason, so that a user with few rights still sees some.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING
from urllib.parse import quote as url_quote

from kube.errors import Unreadable
from kubectl_coterie.cluster import NAMESPACES, Read, Reading
from kubectl_coterie.errors import CliError
from kubectl_coterie.installation.daemon_sets import PluginDaemonSet, plugin_daemon_sets
from kubectl_coterie.installation.interest import named, slim_node, slim_pod
from kubectl_coterie.installation.programs import Kind, ProgramPod, programs_of
from kubectl_coterie.installation.scheduler_configs import leader_leases
from kubectl_coterie.installation.seen import Seen
from topology.model import text_at

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kubectl_coterie.cluster import Object, Session
    from kubectl_coterie.cluster.read_api import Json

__all__ = ["gather"]

_NODE_NAMESPACE = "coterie-node"
"""Of the node plugin."""
_ADMISSION = "/apis/admissionregistration.k8s.io"
_NO_SETTINGS = frozenset({"kube-root-ca.crt"})


async def gather(session: Session, *, version: str, now_s: float) -> Seen:
    """Read it. Raises `CliError` where the API server cannot be reached."""
    reading = Reading(session)
    programs: list[ProgramPod] = []
    pods = await reading.list("/api/v1/pods", keep=_keep_pod(programs))
    found = Read(tuple(programs))
    if pods.value is None:
        found = await _programs_in_namespaces(session, reading, pods.missing)
    daemon_sets = await _daemon_sets(reading)
    keys = {key for one in daemon_sets.value or () for key in one.label_keys}
    config_maps = await _config_maps(reading, found.value or ())
    cluster, metrics = await _extender(session, reading, found.value or ())
    return Seen(
        version=version,
        now_s=now_s,
        kubernetes=await _kubernetes(reading),
        nodes=await reading.list("/api/v1/nodes", keep=_whole(lambda node: slim_node(node, keys))),
        pods=pods,
        programs=found,
        daemon_sets=daemon_sets,
        cluster=cluster,
        policies=await reading.list(f"{_ADMISSION}/v1/validatingadmissionpolicies"),
        bindings=await reading.list(f"{_ADMISSION}/v1/validatingadmissionpolicybindings"),
        mutating=await _mutating(reading),
        metrics=metrics,
        leases=await _leases(reading, config_maps),
        config_maps=config_maps,
    )


def _whole(slim: Callable[[Object], Object]) -> Callable[[Object], Object]:
    """The same, where of an object of an unexpected shape the name is kept."""

    def keep(content: Object) -> Object:
        try:
            return slim(content)
        except Unreadable:
            return named(content)

    return keep


def _keep_pod(programs: list[ProgramPod]) -> Callable[[Object], Object]:
    """What is kept of a pod; its programs are added to the list."""
    slim = _whole(slim_pod)

    def keep(pod: Object) -> Object:
        with contextlib.suppress(Unreadable):  # no pod of ours is of such a shape
            programs.extend(programs_of(pod))
        return slim(pod)

    return keep


async def _programs_in_namespaces(
    session: Session, reading: Reading, missing: str
) -> Read[tuple[ProgramPod, ...]]:
    """For those who may not list all pods."""
    programs: list[ProgramPod] = []
    given = session.options.extender_namespace
    is_any = False
    for namespace in (*((given,) if given else NAMESPACES), _NODE_NAMESPACE):
        path = f"/api/v1/namespaces/{url_quote(namespace, safe='')}/pods"
        read = await reading.list(path, keep=_keep_pod(programs))
        is_any = is_any or read.value is not None
    return Read(tuple(programs)) if is_any else Read(missing=missing)


async def _daemon_sets(reading: Reading) -> Read[list[PluginDaemonSet]]:
    found: list[PluginDaemonSet] = []

    def keep(content: Object) -> None:
        with contextlib.suppress(Unreadable):  # none of ours is of such a shape
            found.extend(plugin_daemon_sets(content))

    read = await reading.list("/apis/apps/v1/daemonsets", keep=keep)
    return Read(found) if read.value is not None else Read(missing=read.missing)


async def _kubernetes(reading: Reading) -> Read[str]:
    read = await reading.get("/version")
    if read.value is None:
        return Read(missing=read.missing)
    return Read(text_at(read.value, "gitVersion"))


async def _config_maps(reading: Reading, programs: Sequence[ProgramPod]) -> dict[str, Read[Object]]:
    """Those that kube-scheduler's pods mount."""
    names = {
        (program.namespace, name)
        for program in programs
        if program.kind is Kind.SCHEDULER
        for name in program.config_maps
        if name not in _NO_SETTINGS
    }
    return {
        f"{namespace}/{name}": await reading.get(
            f"/api/v1/namespaces/{url_quote(namespace, safe='')}/configmaps/"
            f"{url_quote(name, safe='')}"
        )
        for namespace, name in sorted(names)
    }


async def _extender(
    session: Session, reading: Reading, programs: Sequence[ProgramPod]
) -> tuple[Read[Json], dict[str, Read[str]]]:
    """What the extender says of itself, and the metrics of each of its pods."""
    url = session.options.extender_url
    try:
        api = await session.read_api()
        cluster = Read(await api.get("cluster"))
    except CliError as error:
        return Read(missing=str(error)), await _metrics(reading, programs)
    if url is None:
        return cluster, await _metrics(reading, programs)
    try:
        return cluster, {url: Read(await api.text("metrics"))}
    except CliError as error:
        return cluster, {url: Read(missing=str(error))}


async def _metrics(reading: Reading, programs: Sequence[ProgramPod]) -> dict[str, Read[str]]:
    return {
        program.where: await reading.pod_text(
            program.namespace, program.pod, program.ports["health"], "metrics"
        )
        for program in programs
        if program.kind is Kind.EXTENDER and "health" in program.ports
    }


async def _mutating(reading: Reading) -> Read[list[Object]]:
    """Of the newest version that is served; none where the kind is off."""
    for version in ("v1", "v1beta1"):
        read = await reading.list(f"{_ADMISSION}/{version}/mutatingadmissionpolicies")
        if not read.is_absent:
            return read
    return Read([])


async def _leases(
    reading: Reading, config_maps: Mapping[str, Read[Object]]
) -> dict[str, Read[Object]]:
    named: set[str] = set()
    with contextlib.suppress(Unreadable):  # the check of the configuration says so
        named.update(leader_leases(config_maps))
    found: dict[str, Read[Object]] = {}
    for key in sorted(named):
        namespace, _, name = key.partition("/")
        path = f"/apis/coordination.k8s.io/v1/namespaces/{url_quote(namespace, safe='')}/leases"
        found[key] = await reading.get(f"{path}/{url_quote(name, safe='')}")
    return found
