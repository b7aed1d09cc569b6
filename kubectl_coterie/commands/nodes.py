"""`kubectl coterie nodes`: GPU nodes, what is free on each, and the best free sets."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kubectl_coterie.commands.listing import (
    Listing,
    labelled,
    named,
    none_found,
    require_named,
    run_list,
)
from kubectl_coterie.errors import CliError
from kubectl_coterie.terminal import Column, Table
from kubectl_coterie.text import percent, rate
from topology.errors import quote

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from kubectl_coterie.cluster import ReadApiClient, Session
    from kubectl_coterie.cluster.read_api import Json
    from kubectl_coterie.terminal import Output, Style

__all__ = ["node_table", "run"]


def run(given: Namespace) -> int:
    """List them. Raises `CliError`."""
    return run_list(given, _listing)


def _listing(given: Namespace, session: Session, api: ReadApiClient, output: Output) -> Listing:
    return Listing(
        read=partial(_read, given, session, api),
        table=node_table(output.style),
        name=lambda node: f"node/{node['name']}",
        none=none_found("GPU nodes found", None),
        check=partial(_check, given, api),
    )


async def _check(given: Namespace, api: ReadApiClient, nodes: Sequence[Json]) -> None:
    if given.machine is not None and not nodes:
        await _require_machine(api, given.machine)
    require_named("node", nodes, given.names)


async def _read(given: Namespace, session: Session, api: ReadApiClient) -> Sequence[Json]:
    query: dict[str, str] = {}
    if given.machine is not None:
        query["machine"] = given.machine
    if given.unhealthy:
        query["unhealthy"] = "true"
    async with session.progress.step("reading nodes"):
        nodes = named(await api.items("nodes", query), given.names)
    if given.selector is None:
        return nodes
    wanted = await labelled(session, "nodes", given.selector)
    return [node for node in nodes if ("", node["name"]) in wanted]


async def _require_machine(api: ReadApiClient, machine: str) -> None:
    """Raise `CliError` for a machine type that no node is of."""
    machines = (await api.get("capacity"))["machines"]
    if all(machine not in {one["machine"], one["topology"]} for one in machines):
        known = ", ".join(sorted({one["machine"] for one in machines})) or "none yet"
        msg = f"--machine is {quote(machine)}, expected a machine type of the cluster: {known}"
        raise CliError(msg)


def node_table(style: Style) -> Table[Json]:
    """The table; sets are of the node's free GPUs, with GB/s and share of the machine's best."""

    def best(size: str) -> Column[Json]:
        return Column(
            f"BEST {size}",
            lambda node: _best(node, size),
            key=lambda node: (_set(node, size) or {}).get("gbytes_per_s"),
            paint=lambda node, text: style.share(text, (_set(node, size) or {}).get("share")),
        )

    return Table(
        (
            Column("NAME", lambda node: node["name"]),
            Column("MACHINE", lambda node: node["machine"]),
            Column("GPUS", lambda node: str(len(node["gpus"])), key=lambda node: len(node["gpus"])),
            Column("FREE", lambda node: str(node["free"]), key=lambda node: node["free"]),
            Column(
                "UNHEALTHY",
                lambda node: str(_n_unhealthy(node)),
                key=_n_unhealthy,
                paint=lambda node, text: style.paint(text, "red") if _n_unhealthy(node) else text,
            ),
            best("2"),
            best("4"),
            best("8"),
            Column("PODS", lambda node: str(len(_pods(node))), key=lambda node: len(_pods(node))),
            Column("NEW PODS", _takes_pods),
            Column("ZONE", lambda node: node["zone"] or None, is_wide=True),
            Column("FREE GPUS", lambda node: _free(node) or None, is_wide=True),
            Column("PROBLEMS", lambda node: "; ".join(node["problems"]) or None, is_wide=True),
        )
    )


def _set(node: Json, size: str) -> Json | None:
    best: dict[str, Json] = node["best"] or {}
    return best.get(size)


def _best(node: Json, size: str) -> str | None:
    found = _set(node, size)
    if found is None:
        return None
    return f"{rate(found['gbytes_per_s']).removesuffix(' GB/s')} ({percent(found['share'])})"


def _takes_pods(node: Json) -> str:
    return "no" if node["is_unschedulable"] else "yes"


def _n_unhealthy(node: Json) -> int:
    return sum(1 for gpu in node["gpus"] if gpu["reason"] or gpu["state"] == "unhealthy")


def _pods(node: Json) -> set[str]:
    return {gpu["pod_uid"] for gpu in node["gpus"] if gpu["pod_uid"]}


def _free(node: Json) -> str:
    return ",".join(str(gpu["index"]) for gpu in node["gpus"] if gpu["state"] == "free")
