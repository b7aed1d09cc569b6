"""The exceptions of the benchmarks.

BenchmarkError
├── MissingData    a data file that the benchmark reads is not there
├── BadData        a data file does not hold what the benchmark expects
└── ServerFailed   a server under test did not become ready, or did not answer with 200
"""

from __future__ import annotations

__all__ = ["BadData", "BenchmarkError", "MissingData", "ServerFailed"]


class BenchmarkError(Exception):
    """Any error of the benchmarks; `str()` is one sentence for people."""


class MissingData(BenchmarkError):
    """A data file that the benchmark reads is not there."""


class BadData(BenchmarkError):
    """A data file does not hold what the benchmark expects."""


class ServerFailed(BenchmarkError):
    """A server under test did not become ready, or did not answer with 200."""
