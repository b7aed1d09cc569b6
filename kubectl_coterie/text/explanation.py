"""Why a pod waits, or why it has its GPUs: an explanation of the extender as lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubectl_coterie.terminal import age
from kubectl_coterie.text.group import group_lines, waits_for_others
from kubectl_coterie.text.nodes import node_lines
from kubectl_coterie.text.placed import placed_lines
from kubectl_coterie.text.waiting import waiting_lines
from kubectl_coterie.text.words import count, rate
from topology.errors import nearest
from topology.model import DEFAULT_RESOURCE
from topology.printable import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kubectl_coterie.terminal import Style
    from kubectl_coterie.text.words import Json

__all__ = ["explanation_lines"]

_ONE_MEMBER = (
    "The group gets nodes only once there is room for all members; the lines below are of this "
    "member alone:"
)


def explanation_lines(  # noqa: PLR0913 - what is known of a pod comes from several answers
    answer: Json,
    style: Style,
    *,
    now_s: float,
    is_manifest: bool = False,
    has_nodes: bool = False,
    placed: Json | None = None,
    node_ids: Sequence[str] = (),
    scheduler: str = "",
    devices: Sequence[str] = (),
) -> list[str]:
    """The lines of an explanation, as `docs/read-api.md` has it.

    `is_manifest`: the pod need not be in the cluster. `placed` is the read API's entry of a placed
    pod, `node_ids` the devices of its node in order. `scheduler` is what the API server says of a
    pod that filter has not rejected. `has_nodes` adds a line for each node. `devices` are the
    extended resources that a manifest's pod requests.
    """
    pod = printable(answer["pod"])
    if answer["request"] is None:
        others = f", only {' and '.join(map(printable, devices))}" if devices else ""
        hint = next(filter(None, (nearest(one, [DEFAULT_RESOURCE], 0.9) for one in devices)), "")
        return [f"{pod} requests no GPU that Coterie places{others}{hint}."]
    bound, rejected = answer.get("bound"), answer.get("unschedulable")
    name = style.paint(pod.partition("/")[2] or pod, "bold")
    if bound is not None:
        status = style.paint("Placed", "green")
        body = placed_lines(bound, style, placed=placed, node_ids=node_ids)
    else:
        body = waiting_lines(answer, style)
        if is_manifest:
            status = _of_manifest(answer)
        elif rejected is None:
            status = "Pending"
            body.append(_not_rejected(scheduler))
        else:
            status = f"Pending {age(now_s - rejected['since_s'])}"
            status += ", can never be placed here" if _is_never(answer) else ""
        status = style.paint(status, "yellow")
    lines = [f"{name}  {status}   {_request(answer['request'])}"]
    lines += group_lines(answer, now_s)
    if bound is None and waits_for_others(answer):
        lines.append(_ONE_MEMBER)
    lines += body
    lines += [f"Warning: {printable(one)}" for one in answer["warnings"]]
    if has_nodes and bound is not None:
        lines.append("--nodes lists nothing: a pod that has a node is tried on no other.")
    elif has_nodes and answer.get("nodes"):
        lines += ["", *node_lines(answer["nodes"], style)]
    return lines


def _of_manifest(answer: Json) -> str:
    """What would become of the pod of a manifest, without the rest of its group."""
    if _is_never(answer):
        return "Can never be placed here"
    if not answer["summary"]["n_fit"]:
        return "Would wait"
    return "Would wait for its group" if waits_for_others(answer) else "Would be placed"


def _is_never(answer: Json) -> bool:
    """Whether each node lacks something that no other pod's end brings."""
    groups = answer["summary"]["groups"]
    return bool(groups) and all(one["lacks"] for one in groups) and not answer["summary"]["n_fit"]


def _request(request: Json) -> str:
    """What a pod requests: `4 GPUs, nvlink, required`."""
    parts = [count(request["size_gpus"], "GPU")]
    n_containers = sum(1 for one in request["containers"] if one["size"])
    if n_containers > 1:
        parts[0] += f" in {n_containers} containers"
    floor = request["min_bandwidth_gbytes_per_s"]
    if request["affinity"] != "any":
        parts.append(request["affinity"])
    if floor is not None:
        parts.append(f"at least {rate(floor)}")
    if len(parts) > 1:
        parts.append(request["policy"])
    if request.get("nic", "unset") != "unset":
        parts.append(f"nic {request['nic']}")
    return ", ".join(parts)


def _not_rejected(scheduler: str) -> str:
    """Of a pod without a node that filter has not rejected, as far as this extender knows."""
    asked = "kube-scheduler has not asked Coterie about this pod"
    if scheduler:
        return f"{asked}; {scheduler.rstrip('.')}."
    return (
        f"{asked}. Its own count of GPUs, CPU, memory, taints or selectors may leave no node "
        "before, or another scheduler may have the pod: see its schedulerName, and its Events with "
        "kubectl describe pod."
    )
