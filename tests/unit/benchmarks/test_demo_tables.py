"""The demo's tables fit a terminal and say what the figures say."""

from __future__ import annotations

import dataclasses
import io

import pytest
from rich.console import Console

from benchmarks.demo.examples import Example, pick_examples
from benchmarks.demo.figures import compute_figures, show_percent, span
from benchmarks.demo.fleet import lay_out_fleet
from benchmarks.demo.gains import gain_by_machine, match_pods
from benchmarks.demo.groups.comparison import compare_jobs
from benchmarks.demo.groups.pool import lay_out_pool
from benchmarks.demo.pods import DemoPod
from benchmarks.demo.policies import MostAllocatedPolicy, Place
from benchmarks.demo.report import Demo
from benchmarks.demo.tables import example_table, gain_table, policy_table, span_table
from benchmarks.demo.timeline import Moment, Placed, Run
from benchmarks.masks import mask_of, members
from benchmarks.report import Environment
from benchmarks.rivals import Rival


def lowest_ids(free, size, _rng, **_):
    """The first free ids in order."""
    return mask_of(members(free)[:size]) if size <= free.bit_count() else None


LOWEST_IDS = Rival("lowest ids", lambda _topology: lowest_ids)


NODES = lay_out_fleet("1x dgx-1-v100-dead-link")
POOL = lay_out_pool()
NODE = "dgx-1-v100-dead-link-0"
POD = DemoPod(name="pod-007", uid="u", size=7, affinity="nvlink", is_required=True)
WORSE = DemoPod(name="pod-008", uid="w", size=2)


def run(name, gpus, pair):
    """A run of two pods."""
    pods = (Placed(POD, Place(NODE, gpus), 0), Placed(WORSE, Place(NODE, pair), 0))
    never = DemoPod(name="never", uid="n", size=8)
    return Run(name, "", pods, (never,), (Moment(0, {NODE: 0}, pods, 1),) * 2)


RUNS = (
    run("plain kubelet", 0b1111111, 0b11),
    run("NVIDIA best-effort", 0b1111111, 0b100001),
    run("Coterie", 0b1111111, 0b1001),
)
FIGURES = tuple(compute_figures(one, NODES) for one in RUNS)
MEAN = show_percent(FIGURES[0].mean, 1)
MATCHED = tuple(match_pods(RUNS, NODES, seed=1))
DEMO = Demo(
    seed=1,
    cluster="",
    nodes=NODES,
    pods=(POD,),
    runs=RUNS,
    figures=FIGURES,
    spans=tuple(span([one, one]) for one in FIGURES),
    matched=MATCHED,
    gains=gain_by_machine(MATCHED, NODES),
    jobs=compare_jobs(MostAllocatedPolicy("Coterie", "", LOWEST_IDS, POOL, seed=0), POOL, seed=0),
    examples=(*pick_examples(MATCHED), Example(MATCHED[0], best_rival=0)),
    n_requests=1,
    seconds=1.0,
    environment=Environment("2026-01-02", "abc", "a CPU", 2, "3.11", "2.0"),
    version="1.2.3",
)


def shown(table):
    """What a terminal of 80 columns shows."""
    text = io.StringIO()
    Console(file=text, width=80).print(table)
    return text.getvalue()


@pytest.mark.parametrize(
    ("table", "words"),
    [
        pytest.param(
            policy_table(FIGURES), ("NVIDIA best-effort", MEAN, "0.0, 0.0"), id="policies"
        ),
        pytest.param(span_table(DEMO.spans), ("over 2 mixes", f"{MEAN}..{MEAN}"), id="spans"),
        pytest.param(
            example_table(DEMO),
            (NODE, "0,1,2,3,4,5,6", "pod-007, loss", "pod-008", "49.9", "loss: the largest"),
            id="example pods",
        ),
        pytest.param(
            gain_table(DEMO), ("dgx-1-v100-dead-link", "NVIDIA", "49.9", "gain over"), id="machines"
        ),
    ],
)
def test_nothing_is_cut_at_80_columns(table, words):
    """Every word of a wide row is there, and no ellipsis."""
    text = shown(table)
    assert "\u2026" not in text
    for word in words:
        assert word in text


def test_a_set_without_the_requested_affinity_is_marked():
    """Else a rival looks better by what the pod said it cannot use."""
    wider = dataclasses.replace(POD, affinity="pcie-switch")
    placed = tuple(dataclasses.replace(one, pod=wider) for one in MATCHED[0].placed)
    example = Example(dataclasses.replace(MATCHED[0], pod=wider, placed=placed))
    text = shown(example_table(dataclasses.replace(DEMO, examples=(example,))))
    assert text.count("0,1,2,3,4,5,6*") == 3
    assert "*: not the requested affinity" in text
    assert "*" not in shown(example_table(DEMO))


def test_pods_that_never_ran_are_reported():
    """They are part of those that waited."""
    assert "1, 1 never ran" in shown(policy_table(FIGURES))


def test_every_column_is_explained_under_the_table():
    """A reader of the terminal has no other page."""
    text = shown(policy_table(FIGURES))
    for column in ("harmonic", "missed", "waited", "stranded", "free"):
        assert f"{column}: " in " ".join(text.split())
