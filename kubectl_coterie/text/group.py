"""Groups in words: who is here, what one waits for, where it is, what it is worth.

`group_lines` are of the group in a pod's explanation;
`trial_group` of one in a what-if; the others are of a group of the read API.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubectl_coterie.terminal import age
from kubectl_coterie.text.words import count, rate
from topology.printable import printable

if TYPE_CHECKING:
    from kubectl_coterie.text.words import Json

__all__ = [
    "group_domain",
    "group_limit",
    "group_lines",
    "group_reason",
    "trial_group",
    "waits_for_others",
]

_ANY = "any"
"""The level of a group that is in no common domain."""
_WAITS = "waits for its group: "
"""What most reasons of members begin with."""
_NEVER = "never: "
"""What a reason and its detail begin with where no wait helps."""
_LIMITS = {
    "node": "a node's own GPUs",
    "nic": "the NICs near its GPUs",
    "port": "its GPUs' PCIe ports",
    "fabric": "the NVLink fabric between its nodes",
}
"""What limits a group, by `topology.groups.GroupLimit`."""


def group_domain(group: Json) -> str | None:
    """The nearest domain that holds it; None where none is known to.

    >>> group_domain({"level": "leaf", "domain": "P1/S12"})
    'leaf P1/S12'
    """
    return None if group["level"] is None else f"{group['level']} {group['domain']}"


def group_reason(group: Json) -> str | None:
    """What it waits for, None where nothing waits, or this replica does not know.

    >>> group_reason({"n_missing": 2, "reason": "waits for its group: members are missing"})
    '2 members are missing'
    """
    n_missing, reason = group["n_missing"], group["reason"]
    if n_missing:
        return f"{count(n_missing, 'member')} {'is' if n_missing == 1 else 'are'} missing"
    return None if reason is None else _short(reason)


def _short(reason: str) -> str:
    """A reason of members without what most begin with.

    >>> _short("waits for its group: no domain has room for all members")
    'no domain has room for all members'
    """
    return reason.removeprefix(_WAITS)


def trial_group(group: Json) -> str:
    """Whether a group of a what-if starts, where and how fast, or why not; a line."""
    title = f"Group {printable(group['group'])}:"
    n_members, n_placed = group["n_members"], group["n_placed"]
    why, detail = "", printable(group["detail"].removeprefix(_NEVER))
    if group["reason"] is not None:
        why = printable(_short(group["reason"])) + (f" ({detail})" if detail else "")
    members = count(n_members, "member")
    if not n_placed and group["n_bound"]:
        return f"{title} {group['n_bound']} run, and {members} more wait: {why}"
    if not n_placed:
        return f"{title} does not start: {why}"
    parts = [f"{n_placed} of {members}"]
    if n_placed == n_members:
        parts = ["the member gets a node" if n_members == 1 else f"all {members} get nodes"]
    if group["n_bound"]:
        parts[0] += f" beside {group['n_bound']} that run"
    if group["level"] is None:
        parts.append("no network domain is known to hold all")
    else:
        parts[0] += f" in {printable(group['level'])} {printable(group['domain'])}"
    parts += _reached(group, "" if why else detail)
    if why:
        parts.append(f"the others wait: {why}")
    if n_others := group["n_without_gpus"]:
        parts.append(
            f"{n_others:,} more of its size of {group['size']:,} are taken to have no GPUs"
        )
    return f"{title} {'; '.join(parts)}"


def _reached(group: Json, cause: str) -> list[str]:
    """The bandwidth over all members, or that it is not known; one GPU has none."""
    if group["gbytes_per_s"]:
        least = group["least_gbytes_per_s"]
        error = "" if least is None else f" (at least {rate(least)} after the stated error)"
        return [f"{rate(group['gbytes_per_s'])} predicted over all{error}"]
    if group["gbytes_per_s"] is None:
        return ["what it reaches over all is not known" + (f", since {cause}" if cause else "")]
    return []


def group_limit(group: Json) -> str | None:
    """What limits it; a name that is not known stays as it is."""
    name = group["limited_by"]
    return None if name is None else _LIMITS.get(name, name)


def group_lines(answer: Json, now_s: float) -> list[str]:
    """The line, or none for a pod without a group."""
    group = answer.get("group")
    if group is None:
        return []
    title = f"Group {printable(group['name'])}:"
    if group["n_missing"] and group["n_here"]:
        return [f"{title} {_who_is_here(group, now_s)}"]
    if group["reason"] is not None:
        return [f"{title} {_why_it_waits(group, now_s)}"]
    pod = answer["pod"].partition("/")[2]
    return [f"{title} {_where(group, pod)}"]


def waits_for_others(answer: Json) -> bool:
    """Whether no member of the pod's group gets a node before all do: its group has a size."""
    group = answer.get("group")
    return group is not None and (group["size"] or 0) > 1 and not group["n_bound"]


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
    if not n_here:
        members = (
            "no member" if group["size"] is None else f"none of {count(group['size'], 'member')}"
        )
        return f"{members} is here"
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
