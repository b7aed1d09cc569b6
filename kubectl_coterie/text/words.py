"""Numbers, sets and reasons in words, the same in every command.

Unknown is not zero: what the extender does not know is written as unknown, or left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from topology.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "Json",
    "count",
    "gpu_set",
    "joined",
    "limit",
    "offer",
    "percent",
    "rate",
    "when_ended",
]

Json: TypeAlias = "Mapping[str, Any]"
"""An object of an answer; its fields are in docs/read-api.md."""

_THREE_DIGITS = 100
_LIMITS = {
    "nothing": "nothing",
    "switch": "NVSwitch",
    "ring": "its NVLink ring",
    "relay": "NVLink through other GPUs of the set",
    "port": "a GPU's PCIe port",
    "uplink": "a PCIe switch's uplink",
    "socket": "the link between CPU sockets",
}
"""What limits a set, by `topology.value.Limit` in lower case."""


def count(n: int, noun: str) -> str:
    """Write a count with its noun.

    >>> count(1, "GPU"), count(1200, "node")
    ('1 GPU', '1,200 nodes')
    """
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def gpu_set(gpus: Sequence[int] | None) -> str:
    """Write indices of GPUs as a set; None where devices go by count.

    >>> gpu_set([0, 1, 4, 5]), gpu_set(None)
    ('{0,1,4,5}', 'GPUs by count')
    """
    return "GPUs by count" if gpus is None else f"{{{','.join(map(str, gpus))}}}"


def rate(gbytes_per_s: float) -> str:
    """Write a rate with three digits.

    >>> [rate(one) for one in (148.71, 99.425, 15.96, 6.126)]
    ['149 GB/s', '99.4 GB/s', '16 GB/s', '6.13 GB/s']
    """
    form = ".0f" if gbytes_per_s >= _THREE_DIGITS else ".3g"
    return f"{gbytes_per_s:{form}} GB/s"


def percent(share: float) -> str:
    """Write a share; 0.996 is not all of it.

    >>> percent(1.0), percent(0.996), percent(0.33)
    ('100 %', '99 %', '33 %')
    """
    return f"{100 if share >= 1 else min(99, round(share * 100))} %"


def limit(name: str | None) -> str:
    """Say what limits a set; a name that is not known stays as it is."""
    return "" if name is None else _LIMITS.get(name, printable(name))


def offer(one: Json) -> str:
    """Write a set with its rate and share, as far as they are known."""
    gpus = one.get("gpus")
    text, value, share = gpu_set(gpus), one.get("gbytes_per_s"), one.get("share")
    is_single = one.get("is_single", gpus is not None and len(gpus) == 1)
    if gpus is None or is_single:  # one GPU has nothing to reduce
        return text
    if value is None:
        return f"{text}, GB/s unknown"
    return f"{text}, {rate(value)}" + ("" if share is None else f" ({percent(share)} of its best)")


def joined(containers: Iterable[Json]) -> Json:
    """One offer of the sets of containers; the figures are those of the slowest."""
    sets = list(containers)
    several = [one for one in sets if len(one["gpus"]) > 1 and one["gbytes_per_s"] is not None]
    worst = min(several, key=lambda one: float(one["gbytes_per_s"]), default=None)
    gpus = sorted({gpu for one in sets for gpu in one["gpus"]})
    if worst is None:
        is_single = all(len(one["gpus"]) == 1 for one in sets)
        unknown = {"gbytes_per_s": None, "share": None, "limited_by": None}
        return {"gpus": gpus, "is_single": is_single, **unknown}
    share = worst.get("share")
    if share is None and worst.get("loss") is not None:
        share = 1 - worst["loss"]
    return {
        "gpus": gpus,
        "gbytes_per_s": worst["gbytes_per_s"],
        "share": share,
        "limited_by": worst["limited_by"],
    }


def when_ended(would_fit: Json, namespace: str) -> str:
    """Say whose end makes room; pods of this namespace by their names alone.

    >>> when_ended({"when_ended": ["ml/eval-3"], "gpus_freed": 2}, "ml")
    'when eval-3 (2 GPUs) ends'
    """
    names = [printable(one.removeprefix(f"{namespace}/")) for one in would_fit["when_ended"]]
    end = "ends" if len(names) == 1 else "end"
    return f"when {' and '.join(names)} ({count(would_fit['gpus_freed'], 'GPU')}) {end}"
