"""A pod that has a node: its set and limit, plan against the kubelet, and what came second."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubectl_coterie.text.waiting import second_set_line
from kubectl_coterie.text.words import gpu_set, joined, limit, offer
from topology.printable import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kubectl_coterie.terminal import Style
    from kubectl_coterie.text.words import Json

__all__ = ["placed_lines"]


def placed_lines(
    bound: Json, style: Style, *, placed: Json | None, node_ids: Sequence[str]
) -> list[str]:
    """The lines below the first one; `placed` None: what the pod has is not known."""
    machine = bound["machine"]
    node = printable(bound["node"])
    lines = [f"On {node}" + (f", {printable(machine)}" if machine else "")]
    has = _has(bound, placed)
    if has is not None:
        held_by = f", limited by {limit(has['limited_by'])}" if has.get("limited_by") else ""
        lines.append(f"Has {style.share(offer(has), has.get('share'))}{held_by}")
        lines += _containers(bound if placed is None else placed, style)
    lines.append(_plan(bound, placed, node_ids, style))
    second = bound.get("runner_up_set")
    lines += second_set_line(second, style)
    if second is None:
        lines += _now(bound, has, style)
    return lines


def _has(bound: Json, placed: Json | None) -> Json | None:
    """What the pod has, else what was planned; None where neither is known."""
    if placed is not None:
        return None if placed["state"] == "devices_unknown" else placed
    return joined(bound["containers"]) if bound["containers"] else None


def _containers(one: Json, style: Style) -> list[str]:
    """A line for each container, where there are several."""
    containers = one.get("containers") or ()
    if len(containers) < 2:  # noqa: PLR2004 - of one container all is said
        return []
    width = max(len(printable(each["name"])) for each in containers)
    lines: list[str] = []
    for each in containers:
        own = joined([each])
        what = style.share(offer(own), own["share"])
        lines.append(f"  {printable(each['name']):<{width}}  {what}")
    return lines


def _plan(bound: Json, placed: Json | None, node_ids: Sequence[str], style: Style) -> str:
    """The plan against what the kubelet gave."""
    state = None if placed is None else placed["state"]
    as_planned = bound["has_what_was_planned"] if placed is None else placed["as_planned"]
    if state == "devices_unknown":
        why = "it was bound without a plan, and the node's report does not name it yet"
        if placed is not None and placed["planned_ids"]:
            why = "its node has no usable topology now by which to read its plan"
        return f"Which GPUs it has is not known: {why}."
    if bound["plan"] is not None and bound["has_what_was_planned"] is None:
        return f"Its plan cannot be read: {printable(bound['plan'])}"
    if as_planned is None:
        return "Nothing was planned for it; the kubelet chose its GPUs."
    if as_planned and state == "held":
        return "The kubelet gave what was planned."
    if as_planned:
        return "As planned: its node reports only what differs."
    planned: Sequence[str] = () if placed is None else placed["planned_ids"]
    positions = {one: i for i, one in enumerate(node_ids)}
    known = [positions[one] for one in planned if one in positions]
    what = f": planned was {gpu_set(sorted(known))}" if known else ""
    return style.paint(f"The kubelet gave other GPUs than planned{what}.", "red")


def _now(bound: Json, has: Json | None, style: Style) -> list[str]:
    """What its node would give it now, where that is better than what it has."""
    could = bound.get("could_have")
    if not could or not could["fits"] or not could["containers"] or has is None:
        return []
    now, value = joined(could["containers"]), has.get("gbytes_per_s")
    if value is None or now["gbytes_per_s"] is None or now["gbytes_per_s"] <= value:
        return []
    return [f"If it were placed again now, it would get {style.share(offer(now), now['share'])}."]
