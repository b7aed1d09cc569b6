"""Which pods the demo shows one by one, and why some pods wait.

Picks pods that every policy put on the same type of machine: those that gain most over NVIDIA's
best-effort allocation, and the one that does better under a rival, where there is one. It computes
no bandwidth and draws nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.demo.gains import EQUAL_WITHIN, OURS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.demo.fleet import DemoNode
    from benchmarks.demo.gains import Matched
    from benchmarks.demo.pods import DemoPod
    from benchmarks.demo.timeline import Run

__all__ = ["Example", "Waits", "count_waits", "longest_extra_wait", "pick_examples"]

N_GAINS = 3


@dataclass(frozen=True, slots=True)
class Example:
    """One pod to show; `best_rival` is the position of the policy that beats Coterie, or None."""

    matched: Matched
    best_rival: int | None = None


@dataclass(frozen=True, slots=True)
class Waits:
    """Pods that found no place when they arrived, by what they waited for.

    `for_gpus`: no machine of the pod's GPU model had enough GPUs free. `for_set`: one had, but no
    set that the pod's annotations require.
    """

    for_gpus: int
    for_set: int


def pick_examples(matched: Sequence[Matched]) -> tuple[Example, ...]:
    """The largest gains, of different machine types, then the largest loss to any rival.

    Equal ones: the larger difference of GB/s to the reference rival, then seed and name.
    """
    gains: dict[str, Matched] = {}
    for one in sorted(matched, key=_by_gain):
        if one.gap() > EQUAL_WITHIN:
            gains.setdefault(one.machine, one)
    shown = [Example(one) for one in list(gains.values())[:N_GAINS]]
    losses = [
        (one.gap(rival), one.seed, one.pod.name, rival, one)
        for one in matched
        for rival in range(len(one.shares) - 1)
        if one.gap(rival) < -EQUAL_WITHIN
    ]
    if losses:
        *_, rival, worst = min(losses, key=lambda loss: loss[:4])
        shown.append(Example(worst, rival))
    return tuple(shown)


def _by_gain(one: Matched) -> tuple[float, float, int, str]:
    difference = one.gbytes_per_s[OURS] - min(one.gbytes_per_s)
    return (-round(one.gap(), 6), -round(difference, 6), one.seed, one.pod.name)


def count_waits(run: Run, pods: Sequence[DemoPod], nodes: Mapping[str, DemoNode]) -> Waits:
    """Count the pods that waited; `pods` are the whole mix in order of arrival."""
    started = {one.pod.uid for one in run.placed if not one.waited_minutes}
    for_gpus = for_set = 0
    for pod, moment in zip(pods, run.moments, strict=True):
        if pod.uid in started:
            continue
        if any(
            free.bit_count() >= pod.size and pod.product in {None, nodes[name].product}
            for name, free in moment.free.items()
        ):
            for_set += 1
        else:
            for_gpus += 1
    return Waits(for_gpus, for_set)


def longest_extra_wait(ours: Run, theirs: Run) -> tuple[DemoPod, int, int] | None:
    """The pod that waits longest beyond its wait under a rival: pod, our minutes, the rival's."""
    other = {one.pod.uid: one.waited_minutes for one in theirs.placed}
    extra = [
        (other[one.pod.uid] - one.waited_minutes, one.pod.name, one)
        for one in ours.placed
        if other.get(one.pod.uid, one.waited_minutes) < one.waited_minutes
    ]
    if not extra:
        return None
    one = min(extra, key=lambda pair: pair[:2])[2]
    return one.pod, one.waited_minutes, other[one.pod.uid]
