"""Measures the bandwidth of pairs of GPUs with the owner's benchmark.

Runs a program and reads its output; knows no kubelet.
"""

from plugin.measure.pairs import (
    DEFAULT_COMMAND,
    DEFAULT_MESSAGE_BYTES,
    Benchmark,
    all_pairs,
    measure,
)

__all__ = [
    "DEFAULT_COMMAND",
    "DEFAULT_MESSAGE_BYTES",
    "Benchmark",
    "all_pairs",
    "measure",
]
