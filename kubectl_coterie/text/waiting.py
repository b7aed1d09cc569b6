"""A pod that has no node: which nodes fit, why the others do not, and what would help."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubectl_coterie.text.words import count, joined, limit, offer, when_ended
from topology.printable import printable

if TYPE_CHECKING:
    from kubectl_coterie.terminal import Style
    from kubectl_coterie.text.words import Json

__all__ = ["second_set_line", "waiting_lines"]

_PREFIX = "coterie.gpu/"
_REASON_WIDTH = 24


def waiting_lines(answer: Json, style: Style) -> list[str]:
    """The lines below the first one."""
    summary = answer["summary"]
    n_fit, n_nodes = summary["n_fit"], summary["n_nodes"]
    if not n_nodes:
        return ["The extender knows no node with such GPUs."]
    fits = "fits" if n_fit == 1 or n_nodes == 1 else "fit"
    lines = [f"{n_fit:,} of {count(n_nodes, 'node')} {fits}"]
    best = next((node for node in answer["nodes"] if node.get("place") == 1), None)
    if best is not None:
        lines.append(f"Best: {_placement(best, style)}")
        lines += second_set_line(summary.get("runner_up_set"), style)
        other = summary["runner_up"]
        if other is not None:
            lines.append(f"Next node: {printable(other['node'])} {_second(other, style)}")
    lines += _groups(answer)
    change = summary["try"]
    if change is not None:
        wish = change["change"].replace(_PREFIX, "")
        what = style.share(offer(change), change["share"])
        lines.append(f"Try: {wish} -> {printable(change['node'])} {what}")
    left_out = answer.get("not_considered")
    if left_out:
        lines.append(f"Not considered: {'; '.join(map(printable, left_out))}")
    return lines


def second_set_line(second: Json | None, style: Style) -> list[str]:
    """The best other set of the same node, and why it is not the first, or that it now would be."""
    if second is None:
        return []
    title = "A better set is free now" if second.get("is_better") else "Next set"
    return [f"{title} on {printable(second['node'])}: {_second(second, style)}"]


def _second(one: Json, style: Style) -> str:
    return f"{style.share(offer(one), one['share'])}: {printable(one['why'])}"


def _placement(node: Json, style: Style) -> str:
    containers = node["containers"]
    name = printable(node["node"])
    if containers is None:
        return f"{name}, where the kubelet chooses: its topology is unknown"
    one = joined(containers)
    held_by = f", limited by {limit(one['limited_by'])}" if one["limited_by"] else ""
    return f"{name} {style.share(offer(one), one['share'])}{held_by}"


def _groups(answer: Json) -> list[str]:
    """A line for each reason: nodes, the reason, and what would end it or whose it is."""
    rows: list[tuple[str, str, str]] = []
    for group in answer["summary"]["groups"]:
        short = printable(group["reason_short"])
        rows.append((f"{group['n']:,}", short, _detail(group, answer)))
    n_width = max((len(n) for n, _, _ in rows), default=0)
    width = max((len(short) for _, short, _ in rows), default=0)
    width = max(width, _REASON_WIDTH)
    return [f"{n:>{n_width + 2}}  {short:<{width}}  {detail}".rstrip() for n, short, detail in rows]


def _detail(group: Json, answer: Json) -> str:
    nearest, lacks = group["nearest"], group["lacks"]
    if nearest is not None:
        namespace = answer["pod"].partition("/")[0]
        what = "has enough" if group["reason_label"] == "not_enough_free" else "has one"
        return f"{printable(nearest['node'])} {what} {when_ended(nearest, namespace)}"
    if lacks is None:
        return ""
    sentence, reason = group["sentence"], group["reason"]
    machines = printable(sentence.removeprefix(reason).strip().removeprefix("(").removesuffix(")"))
    has = "have" if ", " in machines or " and " in machines else "has"
    return f"{machines} {has} {printable(lacks)}"
