"""What a GPU is worth beside others: one relative figure per product.

What it answers: how much a GPU of one model counts against one of another, where a choice of
nodes weighs what a pod takes and leaves behind. It says nothing on how fast a set of GPUs is
(`topology.value`), and never guesses: a name that is in no row gives None.

Method: the geometric mean of two ratios to a Tesla V100 SXM2, which is worth 1: dense FP16 or BF16
matrix throughput (what training is bound by) and memory bandwidth (what inference is bound by). The
first row whose pattern is found in the name counts, case ignored; more special names stand before
more general ones.

Figures are those that the makers publish, without sparsity (half of a figure with sparsity where
only that is given), and with FP32 accumulation. Sources, one key a row: [gb300], [gb200] NVIDIA
GB300 and GB200 NVL72 product pages, a 72nd of the rack; [hgx] NVIDIA HGX B200 and B300 product
pages, an eighth of the board; [gh200] NVIDIA GH200 datasheet; [h200], [h100], [a100], [a30], [a40],
[a10], [a16], [a2], [l40s], [l40], [l4], [t4], [v100], [p100], [p40], [p4], [k80] NVIDIA's datasheet
of that product; [cn] H800, A800: as the H100 and A100, whose links alone differ; [h20], [l20] the
figures by which H20 and L20 are sold, unverified, as no datasheet is public; [a10g] A10G datasheet,
published by AWS; [ga102] NVIDIA GA102 whitepaper, appendix A; [rtx-a] datasheets of RTX A2000 to
A6000; [ada] NVIDIA Ada GPU architecture whitepaper, appendix; [blackwell] NVIDIA RTX Blackwell GPU
architecture whitepaper, appendix; [pro] RTX PRO 6000 Blackwell datasheets, an eighth of the FP4
figure with sparsity; [turing] NVIDIA Turing GPU architecture whitepaper, table 1; [cdna1], [cdna2],
[cdna3], [cdna4] AMD Instinct MI100, MI200, MI300 and MI350 datasheets (an MI250 is two GPUs to the
driver, each with half of it); [vega20] AMD Instinct MI50 and MI60 datasheets. GPUs without matrix
units (P100 and older, MI50) count with their FP16, or where that is slower FP32, throughput.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topology.model.node_topology import Gpu

__all__ = [
    "GPU_FIGURES",
    "UNKNOWN_WORTH",
    "WORTH_EXPECTED",
    "GpuFigures",
    "NodeWorth",
    "find_gpu_worth",
    "node_worth",
    "parse_worth",
]

UNKNOWN_WORTH = 1.0
"""What a GPU of an unknown model is worth."""
WORTH_EXPECTED = "a decimal number above 0, such as 4 or 0.5, below a million"
_WORTH = re.compile(r"[0-9]{1,6}(?:[.][0-9]{1,6})?")


class GpuFigures(NamedTuple):
    """What is published of a product; `source` is a key of the opening."""

    pattern: str
    tflops: float
    gbytes_per_s: float
    source: str


_UNIT = GpuFigures(r"v100", 125, 900, "v100")
"""The GPU that is worth 1."""

GPU_FIGURES = (
    GpuFigures(r"gb300", 2500, 8000, "gb300"),
    GpuFigures(r"gb200", 2500, 8000, "gb200"),
    GpuFigures(r"\bb[23]00\b", 2250, 8000, "hgx"),
    GpuFigures(r"gh200 144g", 990, 4900, "gh200"),
    GpuFigures(r"gh200", 990, 4000, "gh200"),
    GpuFigures(r"h200 nvl", 835.5, 4800, "h200"),
    GpuFigures(r"h200", 989.5, 4800, "h200"),
    GpuFigures(r"h100 nvl", 835.5, 3900, "h100"),
    GpuFigures(r"h100.*pcie", 756.5, 2000, "h100"),
    GpuFigures(r"h800.*pcie", 756.5, 2000, "cn"),
    GpuFigures(r"h100", 989.5, 3350, "h100"),
    GpuFigures(r"h800", 989.5, 3350, "cn"),
    GpuFigures(r"\bh20\b", 148, 4000, "h20"),
    GpuFigures(r"a100.*80gb.*pcie|a100.*pcie.*80gb", 312, 1935, "a100"),
    GpuFigures(r"a100.*80gb", 312, 2039, "a100"),
    GpuFigures(r"a100", 312, 1555, "a100"),
    GpuFigures(r"a800.*40gb", 312, 1555, "cn"),
    GpuFigures(r"a800.*pcie", 312, 1935, "cn"),
    GpuFigures(r"a800", 312, 2039, "cn"),
    GpuFigures(r"\ba40\b", 149.7, 696, "a40"),
    GpuFigures(r"\ba30\b", 165, 933, "a30"),
    GpuFigures(r"\ba16\b", 17.9, 200, "a16"),
    GpuFigures(r"\ba10g\b", 70, 600, "a10g"),
    GpuFigures(r"\ba10\b", 125, 600, "a10"),
    GpuFigures(r"\ba2\b", 18, 200, "a2"),
    GpuFigures(r"\ba6000\b", 154.8, 768, "rtx-a"),
    GpuFigures(r"\ba5500\b", 136.4, 768, "rtx-a"),
    GpuFigures(r"\ba5000\b", 111.1, 768, "rtx-a"),
    GpuFigures(r"\ba4500\b", 94.6, 640, "rtx-a"),
    GpuFigures(r"\ba4000\b", 76.7, 448, "rtx-a"),
    GpuFigures(r"\ba2000\b", 31.9, 288, "rtx-a"),
    GpuFigures(r"\bl40s\b", 362, 864, "l40s"),
    GpuFigures(r"\bl40\b", 181, 864, "l40"),
    GpuFigures(r"\bl20\b", 119.5, 864, "l20"),
    GpuFigures(r"\bl4\b", 121, 300, "l4"),
    GpuFigures(r"rtx pro 6000.*server", 500, 1597, "pro"),
    GpuFigures(r"rtx pro 6000.*max-q", 438.9, 1792, "pro"),
    GpuFigures(r"rtx pro 6000", 500, 1792, "pro"),
    GpuFigures(r"rtx 6000 ada", 364.2, 960, "ada"),
    GpuFigures(r"rtx 5090", 209.5, 1792, "blackwell"),
    GpuFigures(r"rtx 4090", 165.2, 1008, "ada"),
    GpuFigures(r"rtx 3090 ti", 80, 1008, "ada"),
    GpuFigures(r"rtx 3090", 71, 936, "ga102"),
    GpuFigures(r"quadro rtx [68]000", 130.5, 672, "turing"),
    GpuFigures(r"\bt4g?\b", 65, 320, "t4"),
    GpuFigures(r"v100s", 130, 1134, "v100"),
    GpuFigures(r"v100.*pcie", 112, 900, "v100"),
    _UNIT,
    GpuFigures(r"p100.*12gb", 18.7, 549, "p100"),
    GpuFigures(r"p100.*pcie", 18.7, 732, "p100"),
    GpuFigures(r"p100", 21.2, 732, "p100"),
    GpuFigures(r"\bp40\b", 12, 346, "p40"),
    GpuFigures(r"\bp4\b", 5.5, 192, "p4"),
    GpuFigures(r"\bk80\b", 4.37, 240, "k80"),
    GpuFigures(r"mi355", 2516.6, 8000, "cdna4"),
    GpuFigures(r"mi350", 2309.6, 8000, "cdna4"),
    GpuFigures(r"mi325", 1307.4, 6000, "cdna3"),
    GpuFigures(r"mi300a", 980.6, 5300, "cdna3"),
    GpuFigures(r"mi300", 1307.4, 5300, "cdna3"),
    GpuFigures(r"mi250x", 191.5, 1638.4, "cdna2"),
    GpuFigures(r"mi2[15]0", 181, 1638.4, "cdna2"),
    GpuFigures(r"mi100", 184.6, 1228.8, "cdna1"),
    GpuFigures(r"mi60\b", 29.5, 1024, "vega20"),
    GpuFigures(r"mi50\b", 26.5, 1024, "vega20"),
)
_COMPILED = tuple((re.compile(row.pattern, re.IGNORECASE), row) for row in GPU_FIGURES)


def find_gpu_worth(name: str) -> float | None:
    """Look a product name up; None where it is in no row. Above 0.

    >>> find_gpu_worth("Tesla V100-SXM2-32GB")
    1.0
    >>> round(find_gpu_worth("NVIDIA H100 80GB HBM3"), 2)
    5.43
    >>> find_gpu_worth("some accelerator") is None
    True
    """
    for pattern, row in _COMPILED:
        if pattern.search(name):
            compute, memory = row.tflops / _UNIT.tflops, row.gbytes_per_s / _UNIT.gbytes_per_s
            return math.sqrt(compute * memory)
    return None


def parse_worth(text: str) -> float | None:
    """Read a worth that people wrote; None where it is not what `WORTH_EXPECTED` says.

    >>> parse_worth("2.5")
    2.5
    >>> parse_worth("0") is parse_worth("1e3") is None
    True
    """
    return (float(text) or None) if _WORTH.fullmatch(text) else None


class NodeWorth(NamedTuple):
    """What a device of a node is worth: the mean over its devices.

    `gpus_per_device` is 1, and less where GPUs are partitioned: a partition is worth its share of a
    GPU. `unknown_models` are the names (empty: none) that count as `UNKNOWN_WORTH`.
    """

    per_device: float
    gpus_per_device: float
    unknown_models: tuple[str, ...]


def node_worth(gpus: Sequence[Gpu], overrides: Sequence[tuple[str, float]] = ()) -> NodeWorth:
    """Rate a node's devices, one at least.

    `overrides` are patterns (regular expressions, found in the model's name, case ignored) with the
    worth of a GPU, above 0; the first that is found counts before the table.

    >>> from topology.recordings import load_recording
    >>> node_worth(load_recording("dgx-1-v100").gpus).per_device
    1.0
    >>> node_worth(load_recording("8x-t4").gpus, [("t4", 0.25)]).per_device
    0.25
    """
    compiled = [(re.compile(pattern, re.IGNORECASE), worth) for pattern, worth in overrides]
    n_partitions = Counter(gpu.parent for gpu in gpus if gpu.parent is not None)
    by_model: dict[str, float] = {}
    unknown: list[str] = []
    total = n_gpus = 0.0
    for gpu in gpus:
        model = gpu.model or ""
        if model not in by_model:
            given = (worth for pattern, worth in compiled if pattern.search(model))
            known = next(given, None) or find_gpu_worth(model)
            if known is None:
                unknown.append(model)
            by_model[model] = UNKNOWN_WORTH if known is None else known
        share = 1.0 if gpu.parent is None else 1 / n_partitions[gpu.parent]
        total += share * by_model[model]
        n_gpus += share
    return NodeWorth(total / len(gpus), n_gpus / len(gpus), tuple(unknown))
