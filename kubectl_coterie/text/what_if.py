"""Where pods would go, and what is left of each machine type before and after."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kubectl_coterie.terminal import Column, Table
from kubectl_coterie.text.group import trial_group
from kubectl_coterie.text.words import count, gpu_set, percent, rate
from topology.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kubectl_coterie.terminal import Style
    from kubectl_coterie.text.words import Json

__all__ = ["what_if_lines"]


def what_if_lines(answer: Json, style: Style) -> list[str]:
    """The changed nodes, a line for each group and pod, what is left, what is not considered."""
    lines = _changes(answer)
    placements = answer["placements"]
    if placements:
        table = _pods(answer, style)
        groups = [trial_group(one) for one in answer["groups"]]
        warnings = [f"Warning: {printable(one)}" for one in answer["warnings"]]
        lines += [_sentence(answer), *groups, *warnings, "", *table.lines(placements)]
    pairs = list(zip(answer["before"], answer["after"], strict=True))
    if pairs:
        lines += ["", "What is left:", *_left().lines(pairs)]
    assumed = sorted({printable(one["assumed"]) for one in placements if one["assumed"]})
    if assumed:
        lines += ["", "Assumed:", *(f"  {one}" for one in assumed)]
    if answer["not_considered"]:
        lines += ["", "Not considered:"]
        lines += [f"  {printable(one)}" for one in answer["not_considered"]]
    return lines


def _changes(answer: Json) -> list[str]:
    """The nodes that come and go."""
    by_machine: dict[str, list[str]] = {}
    for one in answer["added"]:
        by_machine.setdefault(printable(one["machine"]), []).append(printable(one["node"]))
    lines = [
        f"Added {count(len(names), 'node')} of {machine}: {', '.join(names)}"
        for machine, names in by_machine.items()
    ]
    if answer["drained"]:
        lines.append(f"Drained {', '.join(map(printable, answer['drained']))}")
    return lines


def _sentence(answer: Json) -> str:
    """How many pods find a node; apart from them those whose selector is not known."""
    placements = answer["placements"]
    placed = [one for one in placements if one["node"] is not None]
    n_open = sum(1 for one in placed if not one["is_selector_known"])
    n, n_sure = len(placements), len(placed) - n_open
    verb = "finds" if n_sure == 1 or n == 1 else "find"
    sentence = f"{n_sure:,} of {count(n, 'pod')} {verb} a node"
    if not n_open:
        return sentence
    verb, its = ("finds", "its") if n_open == 1 else ("find", "their")
    return f"{sentence}; {count(n_open, 'pod')} {verb} a node if {its} selector allows it"


def _pods(answer: Json, style: Style) -> Table[Json]:
    """A table of placements; what evicted pods have now is a column where there are any."""
    has_evicted = any(one["is_evicted"] for one in answer["placements"])
    of_groups = {
        one["group"]: printable(one["reason_short"])
        for one in answer["groups"]
        if one["reason"] is not None
    }

    def of_share(one: Json, text: str) -> str:
        return style.share(text, one["share"])

    now: Column[Json] = Column("NOW", lambda one: _rate(one.get("now_gbytes_per_s")))
    return Table(
        (
            Column("POD", lambda one: str(one["pod"])),
            Column("NODE", lambda one: _text(one["node"])),
            Column("MACHINE", lambda one: _text(one["machine"])),
            Column("SET", _set),
            *((now,) if has_evicted else ()),
            Column("GB/S", lambda one: _rate(one["gbytes_per_s"]), paint=of_share),
            Column("SHARE", _share, paint=of_share),
            Column(
                "REASON",
                partial(_reason, of_groups=of_groups),
                paint=lambda _, text: style.paint(text, "yellow"),
            ),
        )
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _set(one: Json) -> str | None:
    if one["node"] is None:
        return None
    gpus = sorted({gpu for each in one["containers"] for gpu in each["gpus"]})
    return gpu_set(gpus or None)


def _rate(value: float | None) -> str | None:
    return None if value is None else rate(value).removesuffix(" GB/s")


def _share(one: Json) -> str | None:
    return None if one["share"] is None else percent(one["share"])


def _reason(one: Json, *, of_groups: Mapping[str, str]) -> str:
    """Why a pod finds no node, with the number of nodes; else whether it was evicted.

    A member of a group waits for the others, whatever nodes it would have alone.
    """
    if one["node"] is not None:
        return "evicted by the drain" if one["is_evicted"] else ""
    if one.get("group") in of_groups:
        return of_groups[one["group"]]
    groups = [
        f"{printable(group['reason_short'])} ({group['n_nodes']:,})" for group in one["reasons"]
    ]
    return ", ".join(groups) or str(one["reason"])


def _left() -> Table[tuple[Json, Json]]:
    def change(title: str, read: Callable[[Json], int]) -> Column[tuple[Json, Json]]:
        def text(pair: tuple[Json, Json]) -> str:
            before, after = map(read, pair)
            return f"{before:,}" if before == after else f"{before:,} -> {after:,}"

        return Column(title, text)

    return Table(
        (
            Column("MACHINE", lambda pair: str(pair[0]["machine"])),
            change("NODES", lambda one: one["nodes"]),
            change("GPUS", lambda one: one["gpus"]),
            change("FREE", lambda one: one["free"]),
            change("SETS OF 2", lambda one: one["placeable"]["2"]),
            change("SETS OF 4", lambda one: one["placeable"]["4"]),
            change("SETS OF 8", lambda one: one["placeable"]["8"]),
            change("STRANDED", lambda one: one["stranded"]),
        )
    )
