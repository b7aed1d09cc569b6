"""`kubectl coterie pods`: pods with GPUs, their sets and GB/s, and those that wait for some."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from kubectl_coterie.commands.listing import (
    Listing,
    labelled,
    named,
    none_found,
    require_named,
    require_node,
    run_list,
)
from kubectl_coterie.terminal import Column, Table, age
from kubectl_coterie.text import gpu_set, limit, percent, rate, when_ended
from topology.printable import printable

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Sequence

    from kubectl_coterie.cluster import ReadApiClient, Session
    from kubectl_coterie.cluster.read_api import Json
    from kubectl_coterie.terminal import Output, Style

__all__ = ["pod_table", "run"]

_PENDING, _PLACED = "Pending", "Placed"
_DIFFERS, _UNKNOWN = "Differs from plan", "Devices unknown"
_COLOURS = {_PENDING: "yellow", _DIFFERS: "red", _UNKNOWN: "yellow"}


def run(given: Namespace) -> int:
    """List them. Raises `CliError`."""
    return run_list(given, _listing)


def _listing(given: Namespace, session: Session, api: ReadApiClient, output: Output) -> Listing:
    namespace = session.namespace
    what = "pods wait for GPUs" if given.pending else "pods with GPUs found"
    return Listing(
        read=partial(_read, given, session, api),
        table=pod_table(output.style, time.time, has_namespace=namespace is None),
        name=lambda pod: f"pod/{pod['name']}",
        none=none_found(what, namespace),
        key=lambda pod: (pod["namespace"], pod["name"], pod["uid"]),
        check=partial(_check, given, api),
    )


async def _check(given: Namespace, api: ReadApiClient, pods: Sequence[Json]) -> None:
    if given.node is not None and not pods:
        await require_node(api, given.node)
    require_named("pod", pods, given.names)


async def _read(given: Namespace, session: Session, api: ReadApiClient) -> Sequence[Json]:
    """The placed pods, then those that wait."""
    namespace, pods = session.namespace, list["Json"]()
    async with session.progress.step("reading pods"):
        if not given.pending:
            query = {"namespace": namespace, "node": given.node}
            placed = await api.items("pods", {k: v for k, v in query.items() if v is not None})
            pods += sorted(placed, key=lambda pod: (pod["namespace"], pod["name"]))
        if given.node is None:
            waiting = await api.items("pending")
            pods += [pod for pod in waiting if namespace in {None, pod["namespace"]}]
    pods = named(pods, given.names)
    if given.selector is None:
        return pods
    wanted = await labelled(session, "pods", given.selector, namespace)
    return [pod for pod in pods if (pod["namespace"], pod["name"]) in wanted]


def pod_table(style: Style, clock: Callable[[], float], *, has_namespace: bool) -> Table[Json]:
    """The table; `clock` gives Unix seconds."""

    def of_share(pod: Json, text: str) -> str:
        return style.share(text, pod.get("share"))

    def status(_: Json, text: str) -> str:
        return style.paint(text, *([_COLOURS[text]] if text in _COLOURS else []))

    def since(pod: Json) -> str | None:
        return age(clock() - pod["since_unix_s"]) if "since_unix_s" in pod else None

    namespace: Column[Json] = Column("NAMESPACE", lambda pod: pod["namespace"])
    return Table(
        (
            *([namespace] if has_namespace else []),
            Column("NAME", lambda pod: pod["name"]),
            Column("STATUS", _status, paint=status),
            Column("GPUS", _size, key=_n_gpus),
            Column("NODE", lambda pod: pod.get("node")),
            Column("MACHINE", lambda pod: pod.get("machine")),
            Column("SET", _set),
            Column("GB/S", _rate, key=lambda pod: pod.get("gbytes_per_s"), paint=of_share),
            Column("SHARE", _share, key=lambda pod: pod.get("share"), paint=of_share),
            Column("GROUP", _group, is_wide=True),
            Column("LIMITED BY", lambda pod: limit(pod.get("limited_by")) or None, is_wide=True),
            Column("REASON", _reason),
            Column("WOULD FIT", _would_fit, is_wide=True),
            Column("SINCE", since, key=lambda pod: pod.get("since_unix_s")),
        )
    )


def _status(pod: Json) -> str:
    if "since_unix_s" in pod:
        return _PENDING
    if pod["state"] == "devices_unknown":
        return _UNKNOWN
    return _DIFFERS if pod["as_planned"] is False else _PLACED


def _n_gpus(pod: Json) -> int | None:
    """What it has, or requests; unknown for an invalid request and for devices not located."""
    if "since_unix_s" in pod:
        size: int | None = pod["size_gpus"]
        return size
    return len(pod["gpus"]) or len(pod["planned_ids"]) or None


def _size(pod: Json) -> str | None:
    size = _n_gpus(pod)
    return None if size is None else str(size)


def _set(pod: Json) -> str | None:
    return gpu_set(pod["gpus"]) if pod.get("gpus") else None


def _rate(pod: Json) -> str | None:
    value = pod.get("gbytes_per_s")
    return None if value is None else rate(value).removesuffix(" GB/s")


def _share(pod: Json) -> str | None:
    share = pod.get("share")
    return None if share is None else percent(share)


def _group(pod: Json) -> str | None:
    """The name of its group; of a pod that waits the counts of members are there too."""
    group = pod.get("group")
    name: str | None = group["name"] if group and "since_unix_s" in pod else group
    return name


def _reason(pod: Json) -> str | None:
    """Why it waits."""
    if "since_unix_s" not in pod:
        return None
    return printable(pod["reason_short"])


def _would_fit(pod: Json) -> str | None:
    """Where it would fit once a few pods have ended."""
    fit = pod.get("would_fit")
    return None if fit is None else f"{fit['node']} {when_ended(fit, pod['namespace'])}"
