"""What the tests of the benchmarks share."""

from __future__ import annotations

import random

import pytest


@pytest.fixture
def rng():
    """A seeded source of random choices."""
    return random.Random(0)  # noqa: S311 - a repeatable experiment, no secret
