"""What each machine type gains, and which pods are shown: on runs made by hand."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks.demo.examples import Waits, count_waits, longest_extra_wait, pick_examples
from benchmarks.demo.figures import compute_figures, span
from benchmarks.demo.fleet import lay_out_fleet
from benchmarks.demo.gains import (
    Tally,
    count_tally,
    gain_by_machine,
    match_pods,
    say_gain,
    say_result,
)
from benchmarks.demo.pods import DemoPod
from benchmarks.demo.policies import Place
from benchmarks.demo.timeline import Moment, Placed, Run

NODES = lay_out_fleet("2x 8x-a6000-bridged, 1x dgx-h100, 1x 4x-l40s, 1x 8x-rtx4090")
PAIRS, OTHER_PAIRS, SWITCHED = "8x-a6000-bridged-0", "8x-a6000-bridged-1", "dgx-h100-0"
BRIDGED, APART = 0b11, 0b100001  # GPUs 0 and 1 of the A6000 machine share a bridge, 0 and 5 do not
BEST = NODES[PAIRS].value_gbytes_per_s(BRIDGED)
LOW = NODES[PAIRS].value_gbytes_per_s(APART)
NAMES = ("plain kubelet", "NVIDIA best-effort", "Coterie")


def placed(name, node, gpus, *, affinity=None, waited=0):
    """A pod with its place."""
    pod = DemoPod(name=name, uid=name, size=gpus.bit_count(), affinity=affinity)
    return Placed(pod, Place(node, gpus), waited)


def runs(*pods):
    """Three runs; each pod is a name with its place under every policy."""
    return tuple(
        Run(
            name,
            "",
            tuple(placed(pod, *places[i]) for pod, *places in pods if places[i] is not None),
            (),
            (Moment(0, dict.fromkeys(NODES, 0), (), 0),),
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
    assert gains[-1].gain == 0


@pytest.mark.parametrize(
    ("values", "tally", "said"),
    [
        pytest.param(
            (1.0, 2.0, 2.0), Tally(0, 0, 3), "0: the rival chose equally fast sets", id="equal"
        ),
        pytest.param((1.0, 2.0, 2.004), Tally(1, 0, 2), "less than 1 %", id="little"),
        pytest.param((1.0, 2.0, 1.5), Tally(0, 3, 0), "-25 %", id="a loss is shown as one"),
    ],
)
def test_a_gain_in_words(values, tally, said):
    """Zero, little and a loss are named as such."""
    gain = dataclasses.replace(gain_by_machine(MATCHED, NODES)[0], gbytes_per_s=values, tally=tally)
    assert say_gain(gain) == said


def test_the_result_names_gains_losses_and_waits():
    """The last words of the demo."""
    spans = [span([compute_figures(run, NODES)]) for run in MIX]
    said = say_result(MATCHED, NODES, spans)
    assert said.startswith(
        "Of 4 pods that every policy put on the same machine type, 1 are faster with Coterie than "
        "with NVIDIA best-effort, 0 slower and 3 equal (1 of all on machines where every set is "
        "equally fast); "
    )
    assert said.endswith("of each mix: 0.0 with Coterie, 0.0 with NVIDIA best-effort.")


def test_the_result_of_a_mix_without_a_match_has_no_figures_to_boast_of():
    """Two policies that never used one machine type."""
    spans = [span([compute_figures(run, NODES)]) for run in MIX]
    assert say_result([], NODES, spans).startswith("Of 0 pods ")


def test_examples_are_on_one_machine_type_and_show_a_rivals_better_pod():
    """The largest gain of a machine type, then the pod that a rival serves best."""
    shown = pick_examples(MATCHED)
    assert [(one.matched.pod.name, one.best_rival) for one in shown] == [
        ("gains", None),
        ("loses", 0),
    ]
    for one in shown:
        machines = {NODES[place.place.node].machine for place in one.matched.placed}
        assert machines == {one.matched.machine}


def test_without_a_gain_or_a_loss_no_pod_is_shown():
    """Nothing is made up where policies agree."""
    assert pick_examples([one for one in MATCHED if one.pod.name in {"equal", "flat"}]) == ()


def test_waiting_pods_are_counted_by_what_they_lack():
    """GPUs of their model, or a set that they require."""
    pods = [
        DemoPod(name=name, uid=name, size=2, product=product)
        for name, product in (
            ("runs", None),
            ("no GPUs of the model", "NVIDIA-L40S"),
            ("no set", "NVIDIA-RTX-A6000"),
            ("never", None),
        )
    ]
    free = dict.fromkeys(NODES, 0) | {PAIRS: APART}
    full = dict.fromkeys(NODES, 0)
    moments = tuple(Moment(0, masks, (), 0) for masks in (free, free, free, full))
    started = tuple(
        Placed(pod, Place(PAIRS, BRIDGED), minute)
        for pod, minute in zip(pods, (0, 5, 7), strict=False)
    )
    run = Run("policy", "", started, (pods[3],), moments)
    assert count_waits(run, pods, NODES) == Waits(for_gpus=2, for_set=1)


def test_the_longest_extra_wait_is_found():
    """By how much longer the pod waits, not by how long."""
    names = ("a", "b", "c")
    ours, theirs = (
        Run(
            "policy",
            "",
            tuple(placed(n, PAIRS, BRIDGED, waited=w) for n, w in zip(names, waits, strict=True)),
            (),
            (),
        )
        for waits in ((50, 9, 0), (48, 1, 3))
    )
    found = longest_extra_wait(ours, theirs)
    assert found is not None
    assert (found[0].name, *found[1:]) == ("b", 9, 1)
    assert longest_extra_wait(theirs, theirs) is None
