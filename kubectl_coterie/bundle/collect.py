"""Reads what a support bundle holds beyond the installation itself.

Logs, metrics and state of Coterie's pods, the read API's answers, and Coterie's Events. What may
not be read is noted with its reason.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote as url_quote

from kubectl_coterie.bundle.contents import Contents
from kubectl_coterie.bundle.settings import parsed_configs, policies_of, program_of
from kubectl_coterie.cluster import Read, Reading
from kubectl_coterie.errors import CliError
from kubectl_coterie.installation import Kind, ProgramPod, Seen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kubectl_coterie.cluster import Object, ReadApiClient, Session
    from kubectl_coterie.cluster.read_api import Json

__all__ = ["collect"]

MOST_PLUGIN_PODS = 50
"""Pods of the node plugin whose logs are read; those with faults come first."""
_ANSWERS = ("cluster", "capacity", "history")
_LISTS = ("machines", "nodes", "pods", "pending", "groups")
_COMPONENTS = ("coterie-extender", "coterie-plugin")
"""Who writes Coterie's Events."""
_EVENT = (
    *("involvedObject", "type", "reason", "message", "note", "count"),
    *("firstTimestamp", "lastTimestamp", "eventTime", "reportingComponent", "reportingInstance"),
)
_FOLDERS = {Kind.EXTENDER: "extender", Kind.SCHEDULER: "extender", Kind.PLUGIN: "plugin"}
DEFAULT_PORT = "8888"
"""Of the extender's setting `listen_port`."""
_UNSAFE = re.compile(r"[^A-Za-z0-9.-]+")


async def collect(session: Session, seen: Seen, *, tail: int) -> Contents:
    """Read it; of each log the last `tail` lines. Raises `CliError` as `gather`."""
    contents = Contents()
    reading = Reading(session)
    _add_seen(contents, seen)
    async with session.progress.step("reading the extender's answers"):
        await _add_read_api(contents, session)
    async with session.progress.step("reading Events"):
        await _add_events(contents, reading)
    for program in _in_order(seen, contents):
        async with session.progress.step(f"reading logs of {program.where}"):
            await _add_program(contents, reading, program, tail)
    return contents


def _add_seen(contents: Contents, seen: Seen) -> None:
    """What the checks looked at."""
    versions = {
        "command": seen.version,
        "extender": None if seen.cluster.value is None else seen.cluster.value["version"],
        "kubernetes": seen.kubernetes.value,
        "images": sorted({program.image for program in seen.programs.value or ()}),
    }
    contents.add("versions.json", versions)
    contents.add_read("nodes.json", seen.nodes)
    contents.add_read("pods.json", seen.pods)
    contents.add_read("programs.json", seen.programs, _programs)
    contents.add_read("policies/validating.json", seen.policies, policies_of)
    contents.add_read("policies/bindings.json", seen.bindings, policies_of)
    contents.add_read("policies/mutating.json", seen.mutating, policies_of)
    for key, read in seen.leases.items():
        contents.add_read(f"leases/{_folder(key)}.json", read, _slim_lease)
    for key, read in seen.config_maps.items():
        if read.value is None:
            contents.lack(f"scheduler configuration in ConfigMap {key}", read.missing)
    contents.add("scheduler-config.json", parsed_configs(seen.config_maps))
    for pod, metrics in seen.metrics.items():
        contents.add_log(f"extender/{_folder(pod)}/metrics.txt", metrics)


def _slim_lease(lease: Object) -> Object:
    return {"spec": lease.get("spec")}


def _programs(programs: Sequence[ProgramPod]) -> object:
    return [program_of(program) for program in programs]


async def _add_read_api(contents: Contents, session: Session) -> None:
    try:
        api = await session.read_api()
    except CliError as error:
        contents.lack("read-api/", str(error))
        return
    for name in _ANSWERS:
        contents.add_read(f"read-api/{name}.json", await _answer(api, name))
    for name in _LISTS:
        contents.add_read(f"read-api/{name}.json", await _items(api, name))
    if session.options.extender_url is not None:
        contents.add_log("extender/state.json", await _text(api, "state"))


async def _answer(api: ReadApiClient, name: str) -> Read[Json]:
    try:
        return Read(await api.get(name))
    except CliError as error:
        return Read(missing=str(error))


async def _items(api: ReadApiClient, name: str) -> Read[list[Json]]:
    try:
        return Read(await api.items(name))
    except CliError as error:
        return Read(missing=str(error))


async def _text(api: ReadApiClient, path: str) -> Read[str]:
    try:
        return Read(await api.text(path))
    except CliError as error:
        return Read(missing=str(error))


async def _add_events(contents: Contents, reading: Reading) -> None:
    for component in _COMPONENTS:
        query = {"fieldSelector": f"reportingComponent={component}"}
        read = await reading.list("/api/v1/events", query, keep=_slim_event)
        contents.add_read(f"events/{component}.json", read)


def _slim_event(event: Object) -> Object:
    return {key: event[key] for key in _EVENT if key in event}


def _in_order(seen: Seen, contents: Contents) -> list[ProgramPod]:
    """Whose logs are read: of the node plugins some, those with faults first."""
    plugins = sorted(seen.plugins, key=lambda one: (one.is_ready, -one.restarts, one.where))
    if len(plugins) > MOST_PLUGIN_PODS:
        n_left = len(plugins) - MOST_PLUGIN_PODS
        why = f"logs of {MOST_PLUGIN_PODS} pods are collected, of those that are not ready first"
        contents.lack(f"logs of {n_left} more pods of the node plugin", why)
    return [*seen.extenders, *seen.schedulers, *plugins[:MOST_PLUGIN_PODS]]


async def _add_program(
    contents: Contents, reading: Reading, program: ProgramPod, tail: int
) -> None:
    folder = f"{_FOLDERS[program.kind]}/{_folder(program.where)}"
    query = {"container": program.container, "tailLines": str(tail)}
    path = f"/api/v1/namespaces/{url_quote(program.namespace, safe='')}/pods"
    path = f"{path}/{url_quote(program.pod, safe='')}/log"
    name = f"{folder}/{program.container}"
    contents.add_log(f"{name}.log", await reading.text(path, query))
    if program.restarts:
        read = await reading.text(path, query | {"previous": "true"})
        contents.add_log(f"{name}.previous.log", read)
    if program.kind is Kind.EXTENDER:
        await _add_state(contents, reading, program, folder)
        contents.lack(f"{folder}/decisions", _decision_log(program))


async def _add_state(
    contents: Contents, reading: Reading, program: ProgramPod, folder: str
) -> None:
    if program.settings.get("tls_cert"):
        why = "the extender answers /state to client certificates alone"
        contents.lack(f"{folder}/state.json", why)
        return
    port = program.settings.get("listen_port", DEFAULT_PORT)
    if not port.isdigit():
        contents.lack(f"{folder}/state.json", f"listen_port of its container is {port}")
        return
    read = await reading.pod_text(program.namespace, program.pod, int(port), "state")
    contents.add_log(f"{folder}/state.json", read)


def _decision_log(program: ProgramPod) -> str:
    path = program.settings.get("decision_log")
    if not path:
        return "the decision log is not written (setting decision_log)"
    return (
        f"it is the file {path} in container {program.container}: copy it from the volume there, "
        "`coterie-extender replay` reads it"
    )


def _folder(where: str) -> str:
    """A name of a pod, or an address, as a folder."""
    return _UNSAFE.sub("_", where)
