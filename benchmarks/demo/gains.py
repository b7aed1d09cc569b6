"""What a user gains by machine type: pods that every policy put on the same type of machine.

Compares Coterie with its rivals on the same machines only, so that no difference comes from the
GPUs that a policy happened to use. It judges by the tables of `benchmarks.demo.fleet`; nothing here
is measured bandwidth.

Method: a judged pod is matched where every policy placed it on one machine type. Machines gain the
ratio of the matched pods' mean GB/s under Coterie and under the reference rival, NVIDIA's
best-effort allocation; two sets within 1 % of each other count as equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from benchmarks.demo.figures import show_percent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from benchmarks.demo.figures import Span
    from benchmarks.demo.fleet import DemoNode
    from benchmarks.demo.pods import DemoPod
    from benchmarks.demo.timeline import Placed, Run

__all__ = [
    "OURS",
    "RIVAL",
    "Gain",
    "Matched",
    "Tally",
    "count_tally",
    "gain_by_machine",
    "match_pods",
    "say_gain",
    "say_result",
]

RIVAL, OURS = 1, -1
"""Positions of the reference rival and of Coterie among the runs of a mix."""
EQUAL_WITHIN = 0.01


@dataclass(frozen=True, slots=True)
class Matched:
    """One pod on one machine type under every policy, in the order of the runs.

    `gbytes_per_s` is predicted all-reduce bus bandwidth, `shares` the same over the machine's best
    set of that size when empty, in 0..1.
    """

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
        matched.append(
            Matched(
                ours.pod,
                seed,
                machines.pop(),
                placed,
                tuple(node.value_gbytes_per_s(gpus) for node, gpus in sets),
                tuple(node.relative(gpus) for node, gpus in sets),
            )
        )
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


def say_result(
    matched: Sequence[Matched], nodes: Mapping[str, DemoNode], spans: Sequence[Span]
) -> str:
    """The result in one sentence, the losses too."""
    tally = count_tally(matched)
    theirs, ours = spans[RIVAL], spans[OURS]
    shares = _means([one.shares for one in matched]) or (1.0,) * len(spans)
    flat = {node.machine for node in nodes.values() if node.is_flat}
    n_flat = sum(one.machine in flat for one in matched)
    return (
        f"Of {len(matched)} pods that every policy put on the same machine type, {tally.faster} "
        f"are faster with Coterie than with {theirs.policy}, {tally.slower} slower and "
        f"{tally.equal} equal ({n_flat} of all on machines where every set is equally fast); "
        f"they get {show_percent(shares[OURS], 1)} % of the machine's best, "
        f"{show_percent(shares[RIVAL], 1)} % with {theirs.policy} and "
        f"{show_percent(shares[0], 1)} % with a {spans[0].policy}; "
        f"pods that waited, of each mix: {ours.n_waited:.1f} with Coterie, "
        f"{theirs.n_waited:.1f} with {theirs.policy}."
    )


def _means(rows: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    return tuple(fmean(column) for column in zip(*rows, strict=True))
