"""`kubectl coterie capacity`: what is free of each machine type, and the sets that it forms."""

from __future__ import annotations

import time
from statistics import fmean
from typing import TYPE_CHECKING

from kubectl_coterie.commands.listing import Listing, none_found, run_list
from kubectl_coterie.errors import CliError
from kubectl_coterie.terminal import Column, Table, age
from kubectl_coterie.text import capacity_headline, percent, sparkline

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterable, Sequence

    from kubectl_coterie.cluster import ReadApiClient, Session
    from kubectl_coterie.cluster.read_api import Json
    from kubectl_coterie.terminal import Output, Style

__all__ = ["capacity_table", "run"]

_N_BARS = 24
_MAX_HOURS = 7 * 24
"""What the extender keeps."""
_DIGEST = 12
"""Characters of a topology's digest that are shown."""
_FREE, _EFFICIENCY = 1, 6
"""Places in a point of the history (docs/read-api.md)."""


def run(given: Namespace) -> int:
    """Show it. Raises `CliError`."""
    if given.history is not None and not 1 <= given.history <= _MAX_HOURS:
        msg = f"--history is {given.history}, expected 1 to {_MAX_HOURS} hours"
        raise CliError(msg)
    return run_list(given, _listing)


def _listing(given: Namespace, session: Session, api: ReadApiClient, output: Output) -> Listing:
    reader = _Reader(given, session, api)
    return Listing(
        read=reader.read,
        table=capacity_table(output.style, time.time, hours=given.history),
        name=lambda machine: f"machine/{machine['machine']}",
        none=none_found("GPU nodes found", None),
        key=_key,
        headline=lambda: reader.headline,
    )


class _Reader:
    """Reads the machine types; `headline` is of the last time."""

    def __init__(self, given: Namespace, session: Session, api: ReadApiClient) -> None:
        self._hours: int | None = given.history
        self._session = session
        self._api = api
        self.headline = ""

    async def read(self) -> Sequence[Json]:
        """The machine types, with bars of the last hours where they are wanted."""
        async with self._session.progress.step("reading capacity"):
            self.headline = capacity_headline(await self._api.get("cluster"))
            machines: list[Json] = (await self._api.get("capacity"))["machines"]
            if self._hours is not None:
                now_s = time.time()
                since_s = now_s - self._hours * 3600
                query = {"since_unix_s": f"{since_s:.0f}"}
                history: list[Json] = (await self._api.get("history", query))["machines"]
                machines = [one | {"bars": _bars(one, history, since_s, now_s)} for one in machines]
        return machines


def _key(machine: Json) -> tuple[str, str | None, str]:
    return machine["machine"], machine["topology"], machine["resource"]


def _bars(machine: Json, history: Sequence[Json], since_s: float, now_s: float) -> Json:
    """A figure for each part of the time: the mean of its points, free GPUs and efficiency."""
    wanted = _key(machine)
    points = next((one["points"] for one in history if _key(one) == wanted), ())
    parts: list[list[Sequence[float | None]]] = [[] for _ in range(_N_BARS)]
    for point in points:
        part = int((point[0] - since_s) / (now_s - since_s) * _N_BARS)
        if 0 <= part < _N_BARS:
            parts[part].append(point)
    return {
        name: [_mean(point[at] for point in part) for part in parts]
        for name, at in (("free", _FREE), ("efficiency", _EFFICIENCY))
    }


def _mean(values: Iterable[float | None]) -> float | None:
    """Of those that are known; None where none is."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def capacity_table(style: Style, clock: Callable[[], float], *, hours: int | None) -> Table[Json]:
    """The table; `clock` gives Unix seconds. With `hours` bars of free GPUs and of efficiency."""

    def number(title: str, read: Callable[[Json], int], *, is_bad: bool = False) -> Column[Json]:
        def paint(one: Json, text: str) -> str:
            return style.paint(text, "red") if is_bad and read(one) else text

        return Column(title, lambda one: f"{read(one):,}", key=read, paint=paint)

    def stranded(one: Json) -> str:
        n, since = one["stranded"], one["stranded_since_unix_s"]
        return f"{n:,} (for {age(clock() - since)})" if n and since is not None else f"{n:,}"

    def bars(title: str, key: str, top: Callable[[Json], float]) -> Column[Json]:
        return Column(title, lambda one: sparkline(one["bars"][key], top=top(one)))

    columns: tuple[Column[Json], ...] = (
        Column("MACHINE", lambda one: str(one["machine"])),
        number("NODES", lambda one: one["nodes"]),
        number("GPUS", lambda one: one["gpus"]),
        number("FREE", lambda one: one["free"]),
        number("UNHEALTHY", lambda one: one["unhealthy"], is_bad=True),
        number("UNAVAILABLE", lambda one: one["unavailable"]),
        number("SETS OF 2", lambda one: one["placeable"]["2"]),
        number("SETS OF 4", lambda one: one["placeable"]["4"]),
        number("SETS OF 8", lambda one: one["placeable"]["8"]),
        Column("STRANDED", stranded, key=lambda one: one["stranded"]),
        Column(
            "EFFICIENCY",
            lambda one: None if one["efficiency"] is None else percent(one["efficiency"]),
            key=lambda one: one["efficiency"],
            paint=lambda one, text: style.share(text, one["efficiency"]),
        ),
        Column("RESOURCE", lambda one: one["resource"], is_wide=True),
        Column("TOPOLOGY", lambda one: one["topology"] and one["topology"][:_DIGEST], is_wide=True),
    )
    if hours is None:
        return Table(columns)
    more = (
        bars(f"FREE, {hours} H", "free", lambda one: one["gpus"]),
        bars(f"EFFICIENCY, {hours} H", "efficiency", lambda _: 1.0),
    )
    return Table((*columns, *more))
