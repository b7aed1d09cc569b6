"""Figures of one machine type: what else could be had from the same GPUs."""

from dataclasses import replace
from itertools import combinations, permutations
from statistics import fmean

import pytest

from tests.machines import machine
from topology.audit.figures import MachineFigures, kubelet_orders, nvidia_pair_scores
from topology.model import AcceleratorLink, Gpu, LinkKind, PcieLevel, SwitchFabric, mask_of
from topology.recordings import load_recording
from topology.select import build_tables
from topology.value import Limit

DGX1 = load_recording("dgx-1-v100")


def first_best(scores, order, size):
    """NVIDIA's choice by enumerating partitions of GPUs and padding, as its library does."""
    line = [*order, *([None] * (-len(order) % size))]
    padding = line.count(None)

    def score(block):
        return sum(scores[a][b] for a, b in combinations([g for g in block if g is not None], 2))

    def partitions(rest):
        if len(rest) == size:
            yield [tuple(rest)]
            return
        for chosen in combinations(range(1, len(rest)), size - 1):
            block = (rest[0], *(rest[i] for i in chosen))
            if block.count(None) in {0, padding}:
                left = [
                    g
                    for i, g in enumerate(rest)
                    if i not in (0, *chosen) and not (g is None and None in block)
                ]
                yield from ([block, *tail] for tail in partitions(left))

    best = max(partitions(line), key=lambda blocks: sum(map(score, blocks)))
    return mask_of(max((block for block in best if None not in block), key=score))


@pytest.mark.parametrize(
    ("pool", "size"), [((0, 1, 2, 5), 2), ((0, 2, 4, 5, 7), 2), ((1, 3, 6, 7), 3)]
)
def test_best_effort_is_the_mean_over_all_orders(pool, size):
    """The kubelet names devices in random order, and equal partitions go by that order."""
    scores, value = nvidia_pair_scores(DGX1), build_tables(DGX1).value
    chosen = [value[first_best(scores, order, size)] for order in permutations(pool)]
    found = MachineFigures(DGX1).best_effort(mask_of(pool), size)
    assert found is not None
    assert found.gbytes_per_s == pytest.approx(fmean(chosen))


def test_some_orders_stand_for_all():
    """Every GPU is as often first, to one, and none is left out."""
    orders = list(kubelet_orders(tuple(range(8))))
    assert len(orders) == len(set(orders)) == 101
    assert all(sorted(order) == list(range(8)) for order in orders)
    firsts = [sum(order[0] == gpu for order in orders) for gpu in range(8)]
    assert max(firsts) - min(firsts) <= 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [("dgx-h100", True), ("dgx-2", True), ("dgx-1-v100", False), ("dgx-h100-lost-links", False)],
)
def test_machines_on_which_no_placement_gains(name, expected):
    """One switch fabric with equal ports."""
    figures = MachineFigures(load_recording(name))
    assert figures.is_even is expected
    n = figures.machine.n_gpus
    if expected:
        value = build_tables(load_recording(name)).value
        found = figures.best_effort((1 << n) - 2, 3)
        assert found is not None
        assert found.gbytes_per_s == value[0b1110]
        assert figures.best(0b11, 0b1100) == 0b11


def test_one_gpu_has_no_sets():
    """Such a machine is not even either: it has nothing to reduce."""
    figures = MachineFigures(machine([Gpu()]))
    assert not figures.is_even
    assert figures.n_stranded(1) == 0


def big(*, n=20, level=PcieLevel.NODE, is_switched=False):
    """A machine above 16 GPUs: equal PCIe, or a fabric, or one pair with links."""
    gpus = [Gpu(model="NVIDIA L4", numa_node=0)] * n
    fabrics = [SwitchFabric(tuple((i, 4) for i in range(n)))] if is_switched else []
    return machine(gpus, levels={"else": level}, fabrics=fabrics)


def test_above_16_gpus_equal_sets_are_judged():
    """Their value depends on their size alone."""
    figures = MachineFigures(big(is_switched=True))
    assert figures.is_judged
    assert figures.worth(0b11).share == 1
    assert figures.limit(0b11) is Limit.SWITCH
    assert figures.best(0b11, 0b100) == 0b11
    assert figures.best_effort(0b111, 2) == figures.worth(0b11)
    assert (figures.n_stranded(0b111), figures.n_stranded(0b1111)) == (3, 0)


def test_above_16_gpus_unequal_sets_are_not():
    """They would have to be searched."""
    unequal = machine(
        [Gpu(model="NVIDIA A100-SXM4-80GB", numa_node=0)] * 17,
        levels={"else": PcieLevel.NODE},
        links={(0, 1): AcceleratorLink(LinkKind.NVLINK, 4)},
    )
    figures = MachineFigures(unequal)
    assert not figures.is_judged
    assert figures.best_effort(0b111, 2) is None


def test_models_are_mixed_only_where_they_are_mixed_now():
    """No pod would be given GPUs of two models, and what one has is never called better."""
    fast, slow = "NVIDIA A100-SXM4-80GB", "NVIDIA L4"
    gpus = [Gpu(model=model, numa_node=0) for model in (slow, fast, fast, slow)]
    link = AcceleratorLink(LinkKind.NVLINK, 4)
    figures = MachineFigures(
        machine(gpus, levels={"else": PcieLevel.SYS}, links={(0, 1): link, (2, 3): link})
    )
    assert not figures.is_even
    assert figures.best(0b1001, 0b0110) == 0b1001  # two slow ones, and not a mixed pair
    assert figures.best(0b0101, 0b1010) == 0b0011  # mixed already: the linked pair


def test_stranded_gpus():
    """As the read API counts them: of four where there are four, else of two."""
    figures = MachineFigures(DGX1)
    assert (figures.n_stranded(0), figures.n_stranded(0b1111), figures.n_stranded(0b111001)) == (
        *(0, 0),
        4,
    )
    pair = machine([Gpu(model="NVIDIA L4")] * 3, levels={"else": PcieLevel.PIX})
    small = MachineFigures(replace(pair, cpu=DGX1.cpu))
    assert (small.n_stranded(0b1), small.n_stranded(0b11)) == (1, 0)
