"""The figures of the demo's table, on runs made by hand."""

from __future__ import annotations

import pytest

from benchmarks.demo.figures import compute_figures, has_affinity, span
from benchmarks.demo.fleet import FLEET, lay_out_fleet
from benchmarks.demo.pods import DemoPod
from benchmarks.demo.policies import Place
from benchmarks.demo.timeline import Moment, Placed, Run

NODES = lay_out_fleet("1x 8x-a6000-bridged, 1x gb200-tray")
PAIRS, TRAY = "8x-a6000-bridged-0", "gb200-tray-0"
ALL_PAIRS, ALL_TRAY = 0xFF, 0xF
BRIDGED, APART = 0b11, 0b100001  # GPUs 0 and 1 share a bridge, 0 and 5 do not


def placed(name, gpus, *, node=PAIRS, affinity=None, required=False, waited=0):
    """A pod with its place."""
    pod = DemoPod(
        name=name, uid=name, size=gpus.bit_count(), affinity=affinity, is_required=required
    )
    return Placed(pod, Place(node, gpus), waited)


def run(*pods, unplaced=(), free=(0, 0)):
    """A run whose every moment has the same GPUs free."""
    moment = Moment(0, dict(zip((PAIRS, TRAY), free, strict=True)), pods, 0)
    return Run("policy", "note", pods, unplaced, (moment, moment))


def test_the_fleet_is_as_large_and_as_mixed_as_promised():
    """At least 8 machine types and 40 nodes."""
    nodes = lay_out_fleet(FLEET)
    assert len(nodes) >= 40
    assert len({node.machine for node in nodes.values()}) >= 8


def test_values_come_from_the_core():
    """A bridged pair is its machine's best, another pair is not."""
    node = NODES[PAIRS]
    assert node.relative(BRIDGED) == 1
    assert 0 < node.relative(APART) < 0.5
    assert node.relative(0b1) == 1
    assert node.value_gbytes_per_s(BRIDGED) == node.tables.best_value[2]


def test_means_leave_out_single_gpus_and_pods_that_do_not_care():
    """The mean with `none` pods stands apart."""
    low = NODES[PAIRS].relative(APART)
    figures = compute_figures(
        run(
            placed("a", BRIDGED),
            placed("b", APART),
            placed("c", APART, affinity="none"),
            placed("d", 0b1),
        ),
        NODES,
    )
    assert figures.n_judged == 2
    assert figures.mean == pytest.approx((1 + low) / 2)
    assert figures.harmonic == pytest.approx(2 / (1 + 1 / low))
    assert figures.worst == pytest.approx(low)
    assert figures.mean_all == pytest.approx((1 + 2 * low) / 3)
    best = NODES[PAIRS].tables.best_value[2]
    assert figures.mean_gbytes_per_s == pytest.approx(best * (1 + low) / 2)


def test_a_run_without_judged_pods_has_figures_too():
    """Nothing to judge is no failure."""
    figures = compute_figures(run(placed("a", 0b1)), NODES)
    assert (figures.n_judged, figures.mean, figures.mean_gbytes_per_s) == (0, 1, 0)


def test_missed_wishes_and_waits_are_counted():
    """Required ones among the missed, never placed ones among the waiting."""
    never = DemoPod(name="never", uid="never", size=8)
    figures = compute_figures(
        run(
            placed("a", APART, affinity="nvlink", required=True),
            placed("b", APART, affinity="nvlink", waited=4),
            placed("c", BRIDGED, affinity="nvlink", waited=2),
            unplaced=(never,),
        ),
        NODES,
    )
    assert (figures.n_missed, figures.n_required_missed) == (2, 1)
    assert (figures.n_waited, figures.n_unplaced, figures.mean_wait_minutes) == (3, 1, 3)


@pytest.mark.parametrize(
    ("free", "pairs", "fours"),
    [
        pytest.param((0, 0), 0, 0, id="nothing free, nothing stranded"),
        pytest.param((BRIDGED, 0), 0, 2, id="a bridged pair serves pairs, not fours"),
        pytest.param((APART, 0), 2, 2, id="two GPUs without their bridges"),
        pytest.param((ALL_PAIRS, ALL_TRAY), 0, 0, id="empty machines strand nothing"),
        pytest.param((0, 0b111), 1, 3, id="three of a tray leave one over"),
    ],
)
def test_stranded_gpus(free, pairs, fours):
    """Free GPUs that near-best disjoint sets cannot use."""
    figures = compute_figures(run(free=free), NODES)
    assert dict(figures.stranded) == {2: pairs, 4: fours}
    assert figures.n_free == sum(mask.bit_count() for mask in free)
    assert figures.peak_share == pytest.approx(1 - figures.n_free / 12)


@pytest.mark.parametrize(
    ("gpus", "affinity", "holds"),
    [
        pytest.param(BRIDGED, "nvlink", True, id="bridge"),
        pytest.param(APART, "nvlink", False, id="no bridge"),
        pytest.param(APART, "numa", False, id="across sockets"),
        pytest.param(APART, None, True, id="no level requested"),
        pytest.param(0b1, "nvlink", True, id="one GPU always"),
    ],
)
def test_affinity(gpus, affinity, holds):
    """The level is read from the core's tables."""
    assert has_affinity(placed("a", gpus, affinity=affinity), NODES) is holds


def test_a_span_has_mean_least_and_most():
    """Every mix counts the same."""
    good = compute_figures(run(placed("a", BRIDGED)), NODES)
    bad = compute_figures(run(placed("a", APART), free=(APART, 0)), NODES)
    low = NODES[PAIRS].relative(APART)
    summed = span([good, bad])
    assert summed.n_mixes == 2
    assert summed.mean == pytest.approx((1 + low) / 2)
    assert summed.mean_range == pytest.approx((low, 1))
    assert summed.harmonic_range == pytest.approx((low, 1))
    assert summed.worst == pytest.approx(low)
    assert dict(summed.stranded) == {2: 1, 4: 1}
