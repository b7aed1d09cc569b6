"""What each policy and each machine type gains, and which pods are shown: on runs made by hand."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks.demo.fleet import lay_out_fleet
from benchmarks.demo.pods import DemoPod
from benchmarks.demo.policies import Place
from benchmarks.demo.results import (
    Tally,
    compute_figures,
    count_tally,
    gain_by_machine,
    match_pods,
    pick_examples,
    say_gain,
    say_result,
)
from benchmarks.demo.timeline import Placed, Run

NODES = lay_out_fleet("2x 8x-a6000-bridged, 1x dgx-h100, 1x 4x-l40s, 1x 8x-rtx4090")
PAIRS, OTHER_PAIRS, SWITCHED = "8x-a6000-bridged-0", "8x-a6000-bridged-1", "dgx-h100-0"
BRIDGED, APART = 0b11, 0b100001  # GPUs 0 and 1 of the A6000 machine share a bridge, 0 and 5 do not
BEST = NODES[PAIRS].value_gbytes_per_s(BRIDGED)
LOW = NODES[PAIRS].value_gbytes_per_s(APART)
NAMES = ("plain kubelet", "NVIDIA best-effort", "Coterie")


def placed(name, node, gpus, **facts):
    """A pod with its place."""
    pod = DemoPod(name=name, uid=name, size=gpus.bit_count(), **facts)
    return Placed(pod, Place(node, gpus), 0)


def runs(*pods):
    """Three runs; each pod is a name with its place under every policy."""
    return tuple(
        Run(
            name,
            tuple(placed(pod, *places[i]) for pod, *places in pods if places[i] is not None),
            (),
            (),
        )
        for i, name in enumerate(NAMES)
    )


MIX = runs(
    ("gains", (PAIRS, APART), (OTHER_PAIRS, APART), (PAIRS, BRIDGED)),
    ("equal", (PAIRS, BRIDGED), (PAIRS, BRIDGED), (PAIRS, 0b1100)),
    ("loses", (PAIRS, BRIDGED), (PAIRS, APART), (PAIRS, APART)),
    ("flat", (SWITCHED, 0b11), (SWITCHED, 0b101), (SWITCHED, 0b1001)),
    ("elsewhere", (SWITCHED, 0b11), (PAIRS, APART), (PAIRS, BRIDGED)),
    ("never ran", None, (PAIRS, APART), (PAIRS, BRIDGED)),
    ("single", (PAIRS, 0b1), (PAIRS, 0b1), (PAIRS, 0b1)),
)
MATCHED = match_pods(MIX, NODES, seed=4)


def test_a_policy_is_judged_by_the_pods_that_care_for_bandwidth():
    """Neither one GPU nor affinity `none` counts; a missed level does, and who waited."""
    one = Run(
        "Coterie",
        (
            placed("level", PAIRS, APART, affinity="nvlink", is_required=True),
            placed("best", PAIRS, BRIDGED, affinity="nvlink"),
            placed("cares not", PAIRS, APART, affinity="none"),
            placed("single", PAIRS, 0b1),
            Placed(DemoPod(name="late", uid="late", size=1), Place(PAIRS, 0b10), 9),
        ),
        (DemoPod(name="huge", uid="huge", size=8),),
        (),
    )
    figures = compute_figures([one, Run("Coterie", (), (), ())], NODES)
    assert figures.mean == pytest.approx((1 + LOW / BEST) / 2)
    assert figures.worst == pytest.approx(LOW / BEST)
    assert figures.mean_gbytes_per_s == pytest.approx((BEST + LOW) / 2)
    counts = (figures.n_missed, figures.n_required_missed, figures.n_waited, figures.n_unplaced)
    assert counts == (0.5, 0.5, 1.0, 0.5)


def test_only_pods_on_one_machine_type_are_compared():
    """Another node of the same type is the same machine; another type is not."""
    assert [one.pod.name for one in MATCHED] == ["gains", "equal", "loses", "flat"]
    first = MATCHED[0]
    assert (first.machine, first.seed) == ("8x-a6000-bridged", 4)
    assert first.gbytes_per_s == (LOW, LOW, BEST)
    assert first.shares == pytest.approx((LOW / BEST, LOW / BEST, 1))


def test_pods_are_counted_as_faster_slower_or_equal():
    """Against NVIDIA's best-effort, or against another rival."""
    assert count_tally(MATCHED) == Tally(1, 0, 3)
    assert count_tally(MATCHED, rival=0) == Tally(1, 1, 2)


def test_every_machine_type_has_its_gain_the_largest_first():
    """NVSwitch gains 0 and says why; a machine without a pod claims nothing."""
    gains = gain_by_machine(MATCHED, NODES)
    assert [(one.machine, one.n_nodes, one.n_pods, say_gain(one)) for one in gains] == [
        ("8x-a6000-bridged", 2, 3, f"+{100 * ((2 * BEST + LOW) / (BEST + 2 * LOW) - 1):.0f} %"),
        ("4x-l40s", 1, 0, "no pod to compare"),
        ("8x-rtx4090", 1, 0, "no pod to compare"),
        ("dgx-h100", 1, 1, "0: every set is equally fast"),
    ]
    assert gains[0].tally == Tally(1, 0, 2)
    loss = dataclasses.replace(gains[0], gbytes_per_s=(1.0, 2.0, 1.5))
    assert say_gain(loss) == "-25 %"


def test_the_result_names_gains_losses_and_waits():
    """The last words of the demo; without a match there is nothing to boast of."""
    figures = [compute_figures([run], NODES) for run in MIX]
    shares, compared, waits = say_result(MATCHED, figures, 120).splitlines()
    assert shares.startswith("Pods get ")
    assert compared.endswith("1 of 4 are faster, 0 slower, the others equal.")
    assert waits == "Of 120 pods 0.0 wait with Coterie, 0.0 with NVIDIA best-effort."
    assert "0 of 0 are faster" in say_result([], figures, 120)


def test_examples_are_on_one_machine_type_and_show_a_rivals_better_pod():
    """The largest gain of a machine type, then the pod that a rival serves best."""
    shown = pick_examples(MATCHED)
    assert [(one.matched.pod.name, one.best_rival) for one in shown] == [
        ("gains", None),
        ("loses", 0),
    ]
    assert pick_examples([one for one in MATCHED if one.pod.name in {"equal", "flat"}]) == ()
