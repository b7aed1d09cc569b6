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


def headline(pods: PodCounts, *, n_gpus: int) -> str:
    """The result in one sentence.

    >>> from topology.audit.values import PodCounts
    >>> print(headline(PodCounts(60, 20, 40, 31, 9, 0.412), n_gpus=272))
    31 of 40 pods with 2 or more GPUs have the best set their node could give; 9 lose 41 % in the
    mean.
    """
    if not n_gpus:
        return "No node in the list has GPUs."
    if not pods.n_judged:
        n_several = pods.n_all - pods.n_single
        if not n_several:
            return "No pod has 2 or more GPUs in a container, so none has anything to reduce."
        counted = "1 pod" if n_several == 1 else f"{n_several} pods"
        return f"None of {counted} with 2 or more GPUs can be judged."
    return _one_pod(pods) if pods.n_judged == 1 else _several_pods(pods)


def _one_pod(pods: PodCounts) -> str:
    if pods.mean_loss is None:
        return "The one pod with 2 or more GPUs has the best set its node could give."
    lost = f"{100 * pods.mean_loss:.0f} %"
    return f"The one pod with 2 or more GPUs loses {lost} against the best set its node could give."


def _several_pods(pods: PodCounts) -> str:
    best = "the best set their node could give"
    if pods.mean_loss is None:
        return f"All {pods.n_judged} pods with 2 or more GPUs have {best}."
    verb = "has" if pods.n_best == 1 else "have"
    lost = f"{100 * pods.mean_loss:.0f} %"
    losing = "1 loses" if pods.n_losing == 1 else f"{pods.n_losing} lose"
    mean = "" if pods.n_losing == 1 else " in the mean"
    return (
        f"{pods.n_best} of {pods.n_judged} pods with 2 or more GPUs {verb} {best}; "
        f"{losing} {lost}{mean}."
    )


def notes(machines: Sequence[MachineAudit]) -> tuple[str, ...]:
    """What the figures are and are not, one sentence each."""
    errors = sorted({error for error in STATED_ERROR.values() if error})
    gib = REFERENCE_MESSAGE_BYTES / 2**30
    predictions = (
        f"GB/s are predicted all-reduce bus bandwidths at {gib:g} GiB messages, not measurements: "
        f"the model's stated error is {100 * errors[0]:.0f} to {100 * errors[-1]:.0f} %, by what "
        f"limits a set, and sets within {100 * VALUE_CLASS_GAP:.0f} % count as equal."
    )
    bound = "Re-placed figures are bounds: they take all pods of a node to be moved at once."
    said = [predictions, bound]
    n_even = sum(one.is_even for one in machines)
    if n_even:
        said.append(
            f"No placement gains bandwidth on {n_even} of {len(machines)} machine types, whose "
            "sets of a size are all worth the same, as on one NVSwitch fabric."
        )
    return tuple(said)
