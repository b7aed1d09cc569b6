"""What the tests of the benchmarks share."""

from __future__ import annotations

import random

import pytest


@pytest.fixture
def rng():
    """A seeded source of random choices."""
    return random.Random(0)  # noqa: S311 - a repeatable experiment, no secret


@pytest.fixture
def rows_of():
    """Turn a table of results into figures by the first cells of each row."""

    def read(table, n_keys=1):
        keys = (row[0] if n_keys == 1 else row[:n_keys] for row in table.rows)
        return dict(zip(keys, (row[n_keys:] for row in table.rows), strict=True))

    return read
