"""The group of a pod in one line: who is here, what it waits for, where it is, what it is worth.

An extender before groups has none in its answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubectl_coterie.terminal import age
from kubectl_coterie.text.words import count, rate
from topology.printable import printable

if TYPE_CHECKING:
    from kubectl_coterie.text.words import Json

__all__ = ["group_lines"]

_ANY = "any"
"""The level of a group that is in no common domain."""


def group_lines(answer: Json, now_s: float) -> list[str]:
    """The line, or none for a pod without a group."""
    group = answer.get("group")
    if group is None:
        return []
    title = f"Group {printable(group['name'])}:"
    if group["n_missing"]:
        return [f"{title} {_who_is_here(group, now_s)}"]
    if group["reason"] is not None:
        return [f"{title} {_why_it_waits(group, now_s)}"]
    pod = answer["pod"].partition("/")[2]
    return [f"{title} {_where(group, pod)}"]


def _who_is_here(group: Json, now_s: float) -> str:
    here = f"{group['n_here']} of {count(group['size'], 'member')} here ({_names(group)})"
    since_s = group["first_since_s"]
    waited = "" if since_s is None else f", the first for {age(now_s - since_s)}"
    return f"{here}{waited}; {group['n_missing']} missing"


def _why_it_waits(group: Json, now_s: float) -> str:
    since_s = group["complete_since_s"]
    waited = "" if since_s is None else f" for {age(now_s - since_s)}"
    why = printable(group["detail"] or group["reason"])
    return f"all {count(group['n_here'], 'member')} here{waited}; {why}"


def _where(group: Json, pod: str) -> str:
    n_bound, n_here = group["n_bound"], group["n_here"]
    state = "bound" if n_bound == n_here else f"here, {n_bound} bound"
    parts = [f"{count(n_here, 'member')} {state}"]
    if group["domain"] and group["level"] not in {None, _ANY}:
        parts[0] += f" in {printable(group['level'])} {printable(group['domain'])}"
    if group["gbytes_per_s"]:
        parts.append(f"{rate(group['gbytes_per_s'])} predicted over all of them")
    others = [one for one in group["members"] if one["name"] != pod and one["node"] is not None]
    if others:
        on = ", ".join(f"{printable(one['name'])} on {printable(one['node'])}" for one in others)
        parts.append(f"beside {on}{_more(group)}")
    return "; ".join(parts)


def _names(group: Json) -> str:
    names = ", ".join(printable(one["name"]) for one in group["members"])
    return f"{names}{_more(group)}"


def _more(group: Json) -> str:
    n_more = group["n_here"] - len(group["members"])
    return f" and {n_more} more" if n_more > 0 else ""
