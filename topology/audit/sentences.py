"""What an audit says in sentences: its result, and what its figures are and are not.

It computes no figure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topology.model import REFERENCE_MESSAGE_BYTES
from topology.select import VALUE_CLASS_GAP
from topology.value import STATED_ERROR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topology.audit.values import MachineAudit, PodCounts

__all__ = ["headline", "notes"]

_BEST = "the best set their node could give"


def headline(pods: PodCounts, *, n_nodes: int, n_covered: int) -> str:
    """The result in one sentence; of `n_nodes` with GPUs `n_covered` are covered.

    >>> from topology.audit.values import PodCounts
    >>> print(headline(PodCounts(60, 20, 40, 31, 9, 0.412), n_nodes=34, n_covered=34))
    31 of 40 pods with 2 or more GPUs have the best set their node could give; 9 lose 41 % in the
    mean.
    >>> print(headline(PodCounts(100, 0, 1, 1, 0, None), n_nodes=100, n_covered=1))
    1 of 100 pods with 2 or more GPUs could be judged: it has the best set its node could give; 99
    not judged; covered 1 of 100 GPU nodes.
    """
    if not n_nodes:
        return "No node in the list has GPUs."
    covered = "" if n_covered == n_nodes else f"; covered {n_covered} of {_nodes(n_nodes)}"
    return f"{_result(pods)}{covered}."


def _nodes(count: int) -> str:
    return "1 GPU node" if count == 1 else f"{count} GPU nodes"


def _result(pods: PodCounts) -> str:
    n_several = pods.n_all - pods.n_single
    n_left = n_several - pods.n_judged
    if not pods.n_judged:
        if not n_several:
            return "No pod has 2 or more GPUs in a container, so none has anything to reduce"
        if n_several == 1:
            return "The one pod with 2 or more GPUs cannot be judged"
        return f"None of {n_several} pods with 2 or more GPUs can be judged"
    if n_left <= 0:
        return _one_pod(pods) if pods.n_judged == 1 else _several_pods(pods)
    found = _of_one(pods, "it") if pods.n_judged == 1 else _of_several(pods)
    judged = f"{pods.n_judged} of {n_several} pods with 2 or more GPUs could be judged"
    return f"{judged}: {found}; {n_left} not judged"


def _one_pod(pods: PodCounts) -> str:
    return _of_one(pods, "The one pod with 2 or more GPUs")


def _of_one(pods: PodCounts, who: str) -> str:
    best = "the best set its node could give"
    if pods.mean_loss is None:
        return f"{who} has {best}"
    return f"{who} loses {100 * pods.mean_loss:.0f} % against {best}"


def _several_pods(pods: PodCounts) -> str:
    who = "pods with 2 or more GPUs"
    if pods.mean_loss is None:
        return f"All {pods.n_judged} {who} have {_BEST}"
    verb = "has" if pods.n_best == 1 else "have"
    return f"{pods.n_best} of {pods.n_judged} {who} {verb} {_BEST}; {_losing(pods)}"


def _of_several(pods: PodCounts) -> str:
    if pods.mean_loss is None:
        return f"all {pods.n_judged} have {_BEST}"
    verb = "has" if pods.n_best == 1 else "have"
    return f"{pods.n_best} {verb} {_BEST}, {_losing(pods)}"


def _losing(pods: PodCounts) -> str:
    lost = f"{100 * (pods.mean_loss or 0):.0f} %"
    return f"1 loses {lost}" if pods.n_losing == 1 else f"{pods.n_losing} lose {lost} in the mean"


def notes(machines: Sequence[MachineAudit]) -> tuple[str, ...]:
    """What the figures are and are not, one sentence each."""
    errors = sorted({error for error in STATED_ERROR.values() if error})
    gib = REFERENCE_MESSAGE_BYTES / 2**30
    predictions = (
        f"GB/s are predicted all-reduce bus bandwidths at {gib:g} GiB messages, not measurements: "
        f"the model's stated error is {100 * errors[0]:.0f} to {100 * errors[-1]:.0f} %, by what "
        f"limits a set, and sets within {100 * VALUE_CLASS_GAP:.0f} % count as equal."
    )
    said = [predictions]
    n_even = sum(one.is_even for one in machines)
    if n_even:
        said.append(
            f"No placement gains bandwidth on {n_even} of {len(machines)} machine types, whose "
            "sets of a size are all worth the same, as on one NVSwitch fabric."
        )
    return tuple(said)
