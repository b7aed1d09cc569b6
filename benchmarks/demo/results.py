"""What the runs are worth: by policy, by machine type, and pods to show one by one.

All policies are judged by the same tables (`benchmarks.demo.fleet`); nothing here is measured
bandwidth.

- Judged pods: two or more GPUs and not affinity `none` (their owners said bandwidth does not
  matter). Share: GB/s of the set over GB/s of the best set of that size on the empty machine.
- Matched pods: judged ones that every policy placed on one machine type, so that no difference
  comes from the GPUs that a policy happened to use. Two sets within 1 % of each other are equal.
- Affinity missed: the pod named a level (nvlink, pcie-switch, numa) and its set does not have it.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from benchmarks.demo.fleet import DemoNode
    from benchmarks.demo.pods import DemoPod
    from benchmarks.demo.timeline import Placed, Run

__all__ = [
    "OURS",
    "RIVAL",
    "Example",
    "Figures",
    "Gain",
    "Matched",
    "Tally",
    "compute_figures",
    "count_tally",
    "gain_by_machine",
    "match_pods",
    "pick_examples",
    "say_gain",
    "say_result",
    "show_percent",
]

RIVAL, OURS = 1, -1
"""Positions of the reference rival, NVIDIA's best-effort, and of Coterie among the policies."""
EQUAL_WITHIN = 0.01
N_GAINS = 3


@dataclass(frozen=True, slots=True)
class Figures:
    """One policy over all mixes: shares of judged pods, and counts for each mix."""

    policy: str
    mean: float
    worst: float
    mean_gbytes_per_s: float
    n_missed: float
    n_required_missed: float
    n_waited: float
    n_unplaced: float


@dataclass(frozen=True, slots=True)
class Matched:
    """One pod on one machine type under every policy, in the order of the runs."""

    pod: DemoPod
    seed: int
    machine: str
    placed: tuple[Placed, ...]
    gbytes_per_s: tuple[float, ...]
    shares: tuple[float, ...]

    def gap(self, rival: int = RIVAL) -> float:
        """Our share less a rival's."""
        return self.shares[OURS] - self.shares[rival]


@dataclass(frozen=True, slots=True)
class Tally:
    """How many matched pods are faster, slower and equally fast under Coterie."""

    faster: int
    slower: int
    equal: int


@dataclass(frozen=True, slots=True)
class Gain:
    """What one machine type gains.

    `gbytes_per_s` and `shares` are means over `n_pods` matched pods, in the order of the policies,
    empty where there is none.
    """

    machine: str
    n_nodes: int
    is_flat: bool
    n_pods: int
    gbytes_per_s: tuple[float, ...]
    shares: tuple[float, ...]
    tally: Tally

    @property
    def gain(self) -> float:
        """Our mean GB/s over the rival's, less 1; 0 without a pod."""
        if not self.n_pods:
            return 0.0
        return self.gbytes_per_s[OURS] / self.gbytes_per_s[RIVAL] - 1


@dataclass(frozen=True, slots=True)
class Example:
    """One pod to show; `best_rival` is the position of the policy that beats Coterie, or None."""

    matched: Matched
    best_rival: int | None = None


def compute_figures(runs: Sequence[Run], nodes: Mapping[str, DemoNode]) -> Figures:
    """Sum up one policy's runs, one of each mix."""
    judged = [one for run in runs for one in run.placed if one.pod.is_judged]
    sets = [(nodes[one.place.node], one.place.gpus) for one in judged]
    missed = [
        one.pod
        for one, (node, gpus) in zip(judged, sets, strict=True)
        if not node.has_affinity(gpus, one.pod.policy.affinity)
    ]
    shares = [node.relative(gpus) for node, gpus in sets] or [1.0]
    return Figures(
        policy=runs[0].policy,
        mean=fmean(shares),
        worst=min(shares),
        mean_gbytes_per_s=fmean([node.value_gbytes_per_s(gpus) for node, gpus in sets] or [0.0]),
        n_missed=len(missed) / len(runs),
        n_required_missed=sum(pod.is_required for pod in missed) / len(runs),
        n_waited=fmean(run.n_waited for run in runs),
        n_unplaced=fmean(len(run.unplaced) for run in runs),
    )


def match_pods(runs: Sequence[Run], nodes: Mapping[str, DemoNode], *, seed: int) -> list[Matched]:
    """The judged pods that all runs of a mix placed on one machine type, in our order of start."""
    others = [{one.pod.uid: one for one in run.placed} for run in runs]
    matched: list[Matched] = []
    for ours in runs[OURS].placed:
        placed = tuple(by_uid[ours.pod.uid] for by_uid in others if ours.pod.uid in by_uid)
        machines = {nodes[one.place.node].machine for one in placed}
        if not ours.pod.is_judged or len(placed) < len(runs) or len(machines) > 1:
            continue
        sets = [(nodes[one.place.node], one.place.gpus) for one in placed]
        values = tuple(node.value_gbytes_per_s(gpus) for node, gpus in sets)
        shares = tuple(node.relative(gpus) for node, gpus in sets)
        matched.append(Matched(ours.pod, seed, machines.pop(), placed, values, shares))
    return matched


def count_tally(matched: Iterable[Matched], rival: int = RIVAL) -> Tally:
    """Compare GB/s pod by pod."""
    ratios = [one.gbytes_per_s[OURS] / one.gbytes_per_s[rival] - 1 for one in matched]
    faster = sum(ratio > EQUAL_WITHIN for ratio in ratios)
    slower = sum(ratio < -EQUAL_WITHIN for ratio in ratios)
    return Tally(faster, slower, len(ratios) - faster - slower)


def gain_by_machine(matched: Sequence[Matched], nodes: Mapping[str, DemoNode]) -> tuple[Gain, ...]:
    """Every machine type of the fleet, the largest gain first, then by name."""
    gains: list[Gain] = []
    for machine in dict.fromkeys(node.machine for node in nodes.values()):
        of_machine = [node for node in nodes.values() if node.machine == machine]
        pods = [one for one in matched if one.machine == machine]
        gains.append(
            Gain(
                machine,
                len(of_machine),
                of_machine[0].is_flat,
                len(pods),
                _means([one.gbytes_per_s for one in pods]),
                _means([one.shares for one in pods]),
                count_tally(pods),
            )
        )
    return tuple(sorted(gains, key=lambda one: (-round(one.gain, 6), one.is_flat, one.machine)))


def pick_examples(matched: Sequence[Matched]) -> tuple[Example, ...]:
    """The largest gains, of different machine types, then the largest loss to any rival.

    Equal ones: the larger difference of GB/s to the slowest policy, then seed and name.
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


def say_gain(gain: Gain) -> str:
    """The gain over the rival for people: a percentage, or 0 and why.

    >>> say_gain(Gain("dgx-h100", 2, True, 9, (300.0, 300.0), (1.0, 1.0), Tally(0, 0, 9)))
    '0: every set is equally fast'
    """
    if gain.is_flat:
        return "0: every set is equally fast"
    if not gain.n_pods:
        return "no pod to compare"
    if not gain.tally.faster + gain.tally.slower:
        return "0: the rival chose equally fast sets"
    if abs(gain.gain) < EQUAL_WITHIN / 2:
        return "less than 1 %"
    return f"{100 * gain.gain:+.0f} %"


def say_result(matched: Sequence[Matched], figures: Sequence[Figures], n_pods: int) -> str:
    """The result for people, a sentence a line, the losses too; a mix has `n_pods`."""
    tally = count_tally(matched)
    theirs, ours = figures[RIVAL], figures[OURS]
    shares = _means([one.shares for one in matched]) or (1.0,) * len(figures)
    return (
        f"Pods get {show_percent(shares[OURS])} % of their machine's best bandwidth with Coterie, "
        f"{show_percent(shares[RIVAL])} % with {theirs.policy}, "
        f"{show_percent(shares[0])} % with a {figures[0].policy}.\n"
        f"Compared pod by pod with {theirs.policy}: {tally.faster} of {len(matched)} are faster, "
        f"{tally.slower} slower, the others equal.\n"
        f"Of {n_pods} pods {ours.n_waited:.1f} wait with Coterie, {theirs.n_waited:.1f} with "
        f"{theirs.policy}."
    )


def show_percent(share: float, digits: int = 0) -> str:
    """Show a share of 1 as a percentage; only what is whole is shown as 100.

    >>> [show_percent(1.0, 1), show_percent(0.9999, 1), show_percent(0.996)]
    ['100.0', '99.9', '99']
    """
    shown = f"{100 * share:.{digits}f}"
    if share < 1 and float(shown) >= 100:
        return f"{100 - 10**-digits:.{digits}f}"
    return shown


def _means(rows: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    return tuple(fmean(column) for column in zip(*rows, strict=True))
