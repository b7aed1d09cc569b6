"""What Coterie gains on one machine: means over sets of free GPUs, computed by hand."""

from dataclasses import replace
from itertools import combinations, permutations
from statistics import fmean
from typing import TypeAlias

import pytest

from tests.machines import NVLINK, machine
from topology.audit import NvidiaNode, SizeGain, list_gain, nvidia_pair_scores, report_gain
from topology.errors import InvalidRequest
from topology.model import NO_LINK, UNKNOWN_LINK, Gpu, PcieLevel, SwitchFabric, gpus_of
from topology.recordings import load_recording
from topology.report.blocks import block_text
from topology.report.compute import BestQuery, report_best, report_value

Levels: TypeAlias = dict[tuple[int, int] | str, PcieLevel]
TWO_MODELS = [Gpu(model="Tesla T4")] * 2 + [Gpu(model="NVIDIA L4")] * 2


def worth(topology, gpus):
    """GB/s of a set, as `value` says."""
    return report_value(topology, gpus).value_gbytes_per_s


def free_sets(topology, size):
    """Every set of free GPUs that holds the size."""
    every = range(topology.n_gpus)
    return [free for k in range(size, len(every) + 1) for free in combinations(every, k)]


@pytest.mark.parametrize("size", [2, 4])
def test_means_are_over_every_set_of_free_gpus(size):
    """Each choice is asked with the same free GPUs, and each set of these counts once."""
    levels: Levels = {(0, 1): PcieLevel.PIX, (2, 3): PcieLevel.PIX, "else": PcieLevel.SYS}
    links = {(0, 1): NVLINK(2), (1, 2): NVLINK(2), (3, 4): NVLINK(1)}
    topology = machine([Gpu(model="Tesla V100-SXM2-16GB")] * 5, links=links, levels=levels)
    node = NvidiaNode(nvidia_pair_scores(topology))
    random, nvidia, coterie = [], [], []
    for free in free_sets(topology, size):
        random.append(fmean(worth(topology, gpus) for gpus in combinations(free, size)))
        chosen = [node.allocate(order, size) for order in permutations(free)]
        nvidia.append(fmean(worth(topology, gpus_of(mask)) for mask in chosen if mask))
        best = report_best(topology, BestQuery(size, free=free)).selected
        assert best is not None
        coterie.append(best.value_gbytes_per_s)
    (found,) = (one for one in report_gain(topology).sizes if one.size_gpus == size)
    assert found.random_gbytes_per_s == pytest.approx(fmean(random), abs=1e-3)
    assert found.best_effort_gbytes_per_s == pytest.approx(fmean(nvidia), abs=1e-3)
    assert found.coterie_gbytes_per_s == pytest.approx(fmean(coterie), abs=1e-3)


def test_free_gpus_without_a_set_of_one_model_are_no_question():
    """Coterie would refuse the node there, so that there is nothing to compare."""
    topology = machine(TWO_MODELS, levels={(0, 1): PcieLevel.PIX, "else": PcieLevel.SYS})
    asked = [free for free in free_sets(topology, 2) if {0, 1} <= {*free} or {2, 3} <= {*free}]
    random = fmean(fmean(worth(topology, gpus) for gpus in combinations(free, 2)) for free in asked)
    (found,) = report_gain(topology).sizes
    assert found.random_gbytes_per_s == pytest.approx(random, abs=1e-3)


def test_a_plugin_of_another_vendor_is_not_compared():
    """NVIDIA's allocation is not that of AMD's device plugin."""
    report = report_gain(load_recording("8x-mi50-pcie-2nic"))
    assert {one.best_effort_gbytes_per_s for one in report.sizes} == {None}


@pytest.mark.parametrize(
    ("topology", "text"),
    [
        pytest.param(machine([Gpu()]), "one GPU has nothing to reduce", id="one GPU"),
        pytest.param(
            load_recording("dgx-2"), "all sets of a size are worth the same", id="even machine"
        ),
        pytest.param(
            machine([TWO_MODELS[0], TWO_MODELS[2]]), "no two GPUs are of one model", id="two models"
        ),
        pytest.param(
            machine([Gpu()] * 3), "unknown: GPU model unknown: --gpu-model", id="unknown model"
        ),
        pytest.param(
            replace(machine([Gpu()] * 2), links=((NO_LINK, UNKNOWN_LINK), (UNKNOWN_LINK, NO_LINK))),
            "not known: the input does not say which GPUs accelerator links join",
            id="unknown links",
        ),
        pytest.param(
            load_recording("8x-mi50-pcie-2nic"), "`show` lists what is unknown", id="unknown P2P"
        ),
    ],
)
def test_says_where_nothing_is_gained_and_what_is_unknown(topology, text):
    """A table of equal figures alone would leave the reader to guess."""
    assert text in block_text(list_gain(report_gain(topology)))


def test_many_sets_of_free_gpus_are_sampled():
    """All of 16 GPUs would take minutes; the note says that they are not all."""
    levels: Levels = {(i, i + 1): PcieLevel.PIX for i in range(0, 10, 2)}
    levels["else"] = PcieLevel.SYS
    topology = machine(
        [Gpu(model="AMD Instinct MI50")] * 11, levels={**levels, "else": PcieLevel.SYS}
    )
    report = report_gain(topology)
    assert not report.is_every_free_set
    assert "at most 256 evenly spaced sets" in block_text(list_gain(report))
    (two, *_) = report.sizes
    assert two.random_gbytes_per_s < two.coterie_gbytes_per_s <= worth(topology, (0, 1))


def test_more_gpus_than_can_be_compared(check_message):
    """Above 16 GPUs, unless all sets are worth the same."""
    levels: Levels = {(0, 1): PcieLevel.PIX, "else": PcieLevel.SYS}
    with pytest.raises(InvalidRequest) as caught:
        report_gain(machine([Gpu(model="Tesla T4")] * 17, levels=levels))
    check_message(caught.value)


def test_a_large_machine_is_reported_where_all_its_sets_are_alike():
    """Above 16 GPUs there is no table, and none is needed."""
    fabric = SwitchFabric(tuple((i, 18) for i in range(18)))
    report = report_gain(machine([Gpu(model="NVIDIA H100 80GB HBM3")] * 18, fabrics=[fabric]))
    assert report.is_known
    assert [one.coterie_gbytes_per_s == one.random_gbytes_per_s for one in report.sizes] == [
        True
    ] * 3


def test_a_gain_on_a_known_machine_is_said_without_a_proviso():
    """The heading is the machine's name, and the figures follow."""
    report = report_gain(machine([Gpu(model="Tesla T4")] * 2))
    known = replace(report, is_known=True, is_even=False, sizes=(SizeGain(2, 8.0, 10.0, 12.0),))
    lines = block_text(list_gain(known)).splitlines()
    assert lines[1].startswith("predicted GB/s")
    assert lines[-1].split() == ["2", "8.0", "10.0", "12.0", "+50", "%", "+20", "%"]
