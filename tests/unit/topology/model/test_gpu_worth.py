"""What GPUs are worth: each name in the row it belongs to, and what a node's devices come to."""

from __future__ import annotations

import math
import re

import pytest

from topology.model import (
    UNKNOWN_WORTH,
    Gpu,
    find_gpu_worth,
    gpu_worth,
    node_worth,
    parse_worth,
)
from topology.recordings import load_recording, recording_names

PRODUCTS = [
    ("NVIDIA GB300", 2500, 8000),
    ("NVIDIA GB200", 2500, 8000),
    ("NVIDIA B200", 2250, 8000),
    ("NVIDIA B300 SXM6 AC", 2250, 8000),
    ("NVIDIA GH200 480GB", 990, 4000),
    ("NVIDIA GH200 144G HBM3e", 990, 4900),
    ("NVIDIA H200", 989.5, 4800),
    ("NVIDIA H200 NVL", 835.5, 4800),
    ("NVIDIA H100 80GB HBM3", 989.5, 3350),
    ("NVIDIA H100 PCIe", 756.5, 2000),
    ("NVIDIA H100 NVL", 835.5, 3900),
    ("NVIDIA H800", 989.5, 3350),
    ("NVIDIA H800 PCIe", 756.5, 2000),
    ("NVIDIA H20", 148, 4000),
    ("NVIDIA A100-SXM4-80GB", 312, 2039),
    ("NVIDIA A100-SXM4-40GB", 312, 1555),
    ("NVIDIA A100 80GB PCIe", 312, 1935),
    ("NVIDIA A100-PCIE-40GB", 312, 1555),
    ("NVIDIA A100-SXM4-80GB 1g.10gb", 312, 2039),
    ("NVIDIA A800-SXM4-80GB", 312, 2039),
    ("NVIDIA A800 80GB PCIe", 312, 1935),
    ("NVIDIA A800 40GB Active", 312, 1555),
    ("NVIDIA A30", 165, 933),
    ("NVIDIA A40", 149.7, 696),
    ("NVIDIA A10", 125, 600),
    ("NVIDIA A10G", 70, 600),
    ("NVIDIA A16", 17.9, 200),
    ("NVIDIA A2", 18, 200),
    ("NVIDIA RTX A6000", 154.8, 768),
    ("NVIDIA RTX A5500", 136.4, 768),
    ("NVIDIA RTX A5000", 111.1, 768),
    ("NVIDIA RTX A4500", 94.6, 640),
    ("NVIDIA RTX A4000", 76.7, 448),
    ("NVIDIA RTX A2000 12GB", 31.9, 288),
    ("NVIDIA L40S", 362, 864),
    ("NVIDIA L40", 181, 864),
    ("NVIDIA L20", 119.5, 864),
    ("NVIDIA L4", 121, 300),
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 500, 1597),
    ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 500, 1792),
    ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 438.9, 1792),
    ("NVIDIA RTX 6000 Ada Generation", 364.2, 960),
    ("NVIDIA GeForce RTX 5090", 209.5, 1792),
    ("NVIDIA GeForce RTX 4090", 165.2, 1008),
    ("NVIDIA GeForce RTX 3090 Ti", 80, 1008),
    ("NVIDIA GeForce RTX 3090", 71, 936),
    ("Quadro RTX 8000", 130.5, 672),
    ("Tesla T4", 65, 320),
    ("Tesla V100-SXM2-32GB", 125, 900),
    ("Tesla V100-PCIE-16GB", 112, 900),
    ("Tesla V100S-PCIE-32GB", 130, 1134),
    ("Tesla P100-SXM2-16GB", 21.2, 732),
    ("Tesla P100-PCIE-16GB", 18.7, 732),
    ("Tesla P100-PCIE-12GB", 18.7, 549),
    ("Tesla P40", 12, 346),
    ("Tesla P4", 5.5, 192),
    ("Tesla K80", 4.37, 240),
    ("AMD Instinct MI355X", 2516.6, 8000),
    ("AMD Instinct MI350X", 2309.6, 8000),
    ("AMD Instinct MI325X", 1307.4, 6000),
    ("AMD Instinct MI300A", 980.6, 5300),
    ("AMD Instinct MI300X", 1307.4, 5300),
    ("AMD Instinct MI250X", 191.5, 1638.4),
    ("AMD Instinct MI250", 181, 1638.4),
    ("AMD Instinct MI210", 181, 1638.4),
    ("AMD Instinct MI100", 184.6, 1228.8),
    ("AMD Instinct MI60", 29.5, 1024),
    ("AMD Instinct MI50", 26.5, 1024),
]
"""Names as drivers give them, with the figures that are published."""


@pytest.mark.parametrize(("name", "tflops", "gbytes_per_s"), PRODUCTS)
def test_a_product_has_its_own_worth(name, tflops, gbytes_per_s):
    """Neighbouring names (L4 and L40S, A10 and A10G) must not meet in one row."""
    expected = math.sqrt(tflops / 125 * gbytes_per_s / 900)
    assert find_gpu_worth(name) == pytest.approx(expected)


def test_every_row_is_that_of_some_product():
    """A row that a more general one before it hides would have no effect."""
    rows = gpu_worth.GPU_FIGURES
    first = {
        next(row for row in rows if re.search(row.pattern, name, re.IGNORECASE))
        for name, *_ in PRODUCTS
    }
    assert set(rows) - first == set()


@pytest.mark.parametrize("name", recording_names())
def test_every_recorded_machine_has_a_worth(name):
    """The benchmarks compare them."""
    assert node_worth(load_recording(name).gpus).unknown_models == ()


def test_every_row_names_a_source_of_the_opening():
    """A figure without a published source is a guess."""
    opening = gpu_worth.__doc__ or ""
    sources = {row.source for row in gpu_worth.GPU_FIGURES}
    assert set(re.findall(r"\[([\w-]+)\]", opening)) == sources


def gpus(*models: str | None, parents: tuple[str | None, ...] = ()) -> list[Gpu]:
    """GPUs of these models, partitions where parents are given."""
    owners = parents or (None,) * len(models)
    return [Gpu(model=model, parent=parent) for model, parent in zip(models, owners, strict=True)]


def test_an_unknown_model_counts_one_and_is_named_once():
    """The Event names it, so that its administrator gives a figure."""
    found = node_worth(gpus("Colossus", "Colossus", None, "Tesla V100-SXM2-32GB"))
    assert found == (UNKNOWN_WORTH, 1.0, ("Colossus", ""))


def test_a_node_of_several_models_is_worth_their_mean():
    """One figure per node is what nodes are compared by."""
    t4 = find_gpu_worth("Tesla T4")
    assert t4 is not None
    found = node_worth(gpus("Tesla T4", "Tesla V100-SXM2-32GB"))
    assert found.per_device == pytest.approx((t4 + 1) / 2)


def test_partitions_share_what_their_gpu_is_worth():
    """Seven instances of one A100 are not seven A100s."""
    models = ("Tesla V100-SXM2-32GB",) * 4
    found = node_worth(gpus(*models, parents=("a", "a", "b", "b")))
    assert found == (0.5, 0.5, ())


@pytest.mark.parametrize(
    ("overrides", "worth"),
    [
        pytest.param([("v100", 3.0)], 3.0, id="found anywhere, case ignored"),
        pytest.param([("v100", 3.0), ("Tesla", 2.0)], 3.0, id="the first that is found"),
        pytest.param([("h100", 9.0)], 1.0, id="not found: the table"),
        pytest.param([("colossus|v1..", 4.0)], 4.0, id="a regular expression"),
    ],
)
def test_overrides_count_before_the_table(overrides, worth):
    """An administrator knows what the GPUs cost."""
    assert node_worth(gpus("Tesla V100-SXM2-32GB"), overrides).per_device == worth


def test_an_override_makes_a_model_known():
    """Nothing is left to report."""
    assert node_worth(gpus("Colossus"), [("colossus", 7.0)]) == (7.0, 1.0, ())


@pytest.mark.parametrize(
    ("text", "worth"),
    [
        ("1", 1.0),
        ("0.25", 0.25),
        ("999999", 999999.0),
        ("0", None),
        ("0.0", None),
        ("-1", None),
        ("1e3", None),
        ("nan", None),
        ("", None),
        ("1000000", None),
        ("1.", None),
        ("\u0661", None),
    ],
)
def test_a_worth_is_a_plain_decimal(text, worth):
    """Labels and settings are read alike; float() takes more than is meant."""
    assert parse_worth(text) == worth
