"""The state of a cluster in a sentence, and a figure over time as a line of bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubectl_coterie.text.words import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kubectl_coterie.text.words import Json

__all__ = ["capacity_headline", "sparkline"]

_BARS = "▁▂▃▄▅▆▇█"


def capacity_headline(cluster: Json) -> str:
    """GPUs, free, stranded, unavailable, unhealthy ones, and pods that wait; as the page begins."""
    free, stranded, bad = cluster["gpus_free"], cluster["gpus_stranded"], cluster["gpus_unhealthy"]
    unavailable, waiting = cluster["gpus_unavailable"], cluster["pods_pending"]
    parts = [count(cluster["gpus"], "GPU"), f"{free:,} free"]
    if free and stranded:
        parts.append(f"{stranded:,} of them can form no set of four")
    if unavailable:
        parts.append(f"{unavailable:,} more free on nodes that take no new pod")
    if bad:
        parts.append(f"{bad:,} unhealthy")
    parts.append(
        "1 pod waits" if waiting == 1 else f"{f'{waiting:,}' if waiting else 'no'} pods wait"
    )
    return ", ".join(parts)


def sparkline(values: Sequence[float | None], *, top: float) -> str:
    """A bar for each value of 0..top; a blank where it is unknown.

    >>> sparkline([0, 4, 8, None], top=8)
    '▁▅█ '
    """
    last = len(_BARS) - 1
    return "".join(
        " " if one is None else _BARS[min(last, round(one / top * last)) if top else 0]
        for one in values
    )
