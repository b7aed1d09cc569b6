"""A line for each node of an explanation: its set for the pod and what is left, or why not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubectl_coterie.terminal import Column, Table
from kubectl_coterie.text.words import gpu_set, joined, percent, rate
from topology.printable import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kubectl_coterie.terminal import Style
    from kubectl_coterie.text.words import Json

__all__ = ["node_lines"]


def node_lines(nodes: Sequence[Json], style: Style) -> list[str]:
    """The table, in the order of the answer: the best first, then those that do not fit."""
    table: Table[Json] = Table(
        (
            Column("NODE", lambda node: str(node["node"])),
            Column("MACHINE", lambda node: str(node["machine"])),
            Column("FREE", lambda node: str(node["free_gpus"])),
            Column("SET", _set),
            Column(
                "GB/S",
                _rate,
                paint=lambda node, text: style.share(text, _joined(node).get("share")),
            ),
            Column("SHARE", _share),
            Column("REASON", _reason),
        )
    )
    return table.lines(nodes)


def _joined(node: Json) -> Json:
    return joined(node["containers"]) if node.get("containers") else {}


def _set(node: Json) -> str | None:
    if not node["fits"]:
        return None
    return gpu_set(_joined(node).get("gpus"))


def _rate(node: Json) -> str | None:
    value = _joined(node).get("gbytes_per_s")
    return None if value is None else rate(value).removesuffix(" GB/s")


def _share(node: Json) -> str | None:
    share = _joined(node).get("share")
    return None if share is None else percent(share)


def _reason(node: Json) -> str | None:
    """Why not; the extender's detail has the figures of that node."""
    if node["fits"]:
        return None
    short = printable(node["reason_short"])
    return f"{short}: {node['detail']}" if node.get("detail") else short
