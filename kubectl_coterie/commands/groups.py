"""`kubectl coterie groups`: the groups, who is here, where they are, or what they wait for."""

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
from kubectl_coterie.text import group_domain, group_limit, group_reason, rate

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Sequence

    from kubectl_coterie.cluster import ReadApiClient, Session
    from kubectl_coterie.cluster.read_api import Json
    from kubectl_coterie.terminal import Output, Style

__all__ = ["group_table", "run"]

_COLOURS = {"Waiting": "yellow", "Claimed": "yellow"}


def run(given: Namespace) -> int:
    """List them. Raises `CliError`."""
    return run_list(given, _listing)


def _listing(given: Namespace, session: Session, api: ReadApiClient, output: Output) -> Listing:
    namespace = session.namespace
    return Listing(
        read=partial(_read, given, session, api),
        table=group_table(output.style, time.time, has_namespace=namespace is None),
        name=lambda group: f"group/{group['name']}",
        none=none_found("groups wait for GPUs" if given.waiting else "groups found", namespace),
        key=lambda group: (group["namespace"], group["name"]),
        check=partial(_check, given, api),
    )


async def _check(given: Namespace, api: ReadApiClient, groups: Sequence[Json]) -> None:
    if given.node is not None and not groups:
        await require_node(api, given.node)
    require_named("group", groups, given.names)


async def _read(given: Namespace, session: Session, api: ReadApiClient) -> Sequence[Json]:
    query: dict[str, str] = {}
    if session.namespace is not None:
        query["namespace"] = session.namespace
    if given.waiting:
        query["state"] = "waiting"
    async with session.progress.step("reading groups"):
        groups = named(await api.items("groups", query), given.names)
    if given.node is not None:
        groups = [group for group in groups if given.node in _nodes(group)]
    if given.selector is None:
        return groups
    wanted = await labelled(session, "pods", given.selector, session.namespace)
    return [group for group in groups if not _pods(group).isdisjoint(wanted)]


def group_table(style: Style, clock: Callable[[], float], *, has_namespace: bool) -> Table[Json]:
    """The table; `clock` gives Unix seconds."""

    def number(title: str, key: str) -> Column[Json]:
        return Column(title, lambda group: _text(group[key]), key=lambda group: group[key])

    def since(title: str, key: str) -> Column[Json]:
        return Column(
            title,
            lambda group: None if group[key] is None else age(clock() - group[key]),
            key=lambda group: group[key],
        )

    def gbytes_per_s(title: str, key: str, *, is_wide: bool = False) -> Column[Json]:
        return Column(
            title,
            lambda group: None if group[key] is None else rate(group[key]).removesuffix(" GB/s"),
            key=lambda group: group[key],
            is_wide=is_wide,
        )

    def status(_: Json, text: str) -> str:
        return style.paint(text, *([_COLOURS[text]] if text in _COLOURS else []))

    namespace: Column[Json] = Column("NAMESPACE", lambda group: group["namespace"])
    return Table(
        (
            *([namespace] if has_namespace else []),
            Column("NAME", lambda group: group["name"]),
            Column("STATUS", lambda group: group["state"].capitalize(), paint=status),
            number("SIZE", "size"),
            number("HERE", "n_here"),
            number("BOUND", "n_bound"),
            Column("DOMAIN", group_domain),
            gbytes_per_s("GB/S", "gbytes_per_s"),
            since("WAITS", "first_since_unix_s"),
            since("AGE", "bound_since_unix_s"),
            Column("REASON", group_reason),
            Column("NODES", _on, key=lambda group: group["n_nodes"], is_wide=True),
            gbytes_per_s("AT LEAST", "least_gbytes_per_s", is_wide=True),
            Column("LIMITED BY", group_limit, is_wide=True),
            Column("DETAIL", lambda group: group["detail"], is_wide=True),
        )
    )


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)


def _nodes(group: Json) -> list[str]:
    """The nodes of its members, each once, in the order of the members."""
    named_nodes = (one["node"] for one in group["members"])
    return list(dict.fromkeys(node for node in named_nodes if node is not None))


def _on(group: Json) -> str | None:
    nodes = _nodes(group)
    n_more = group["n_nodes"] - len(nodes)  # those of members that are not listed
    more = [f"and {n_more} more"] if n_more > 0 else []
    return ",".join([*nodes, *more]) or None


def _pods(group: Json) -> set[tuple[str, str]]:
    return {(group["namespace"], one["name"]) for one in group["members"]}
