"""Quantities, exactly."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.objects.quantity import parse_quantity, parse_whole


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8),
        (8, 8),
        (0.5, Fraction(1, 2)),
        ("4k", 4000),
        ("4Ki", 4096),
        ("2e3", 2000),
        ("2E-1", Fraction(1, 5)),
        ("1E", 10**18),
        ("1Ei", 2**60),
        ("1500m", Fraction(3, 2)),
        ("7u", Fraction(7, 10**6)),
        ("7n", Fraction(7, 10**9)),
        ("-3", -3),
        ("+3", 3),
        (".5", Fraction(1, 2)),
        (".5k", 500),
        ("1.", 1),
        ("1.G", 10**9),
        ("", None),
        (".", None),
        ("4 ", None),
        ("4q", None),
        ("4mi", None),
        ("4KI", None),
        ("0x4", None),
        ("1e9999", None),
        ("9" * 31, None),
        ("nan", None),
        (True, None),
        (None, None),
        (["4"], None),
    ],
)
def test_a_quantity_means_one_number(text, value):
    """Kubernetes' own grammar, with bounds on the length; nothing is rounded."""
    assert parse_quantity(text) == value


@pytest.mark.parametrize(
    ("text", "count"),
    [("8", 8), ("0", 0), ("4000m", 4), ("1k", 1000), ("500m", None), ("-1", None), ("x", None)],
)
def test_devices_come_in_whole_numbers(text, count):
    """Half a GPU is a mistake, not a smaller number."""
    assert parse_whole(text) == count


@given(st.integers(0, 10**9))
def test_canonical_counts_are_read_back(count):
    """The API server writes a count with the largest suffix that keeps it whole."""
    suffix = ""
    number = count
    for larger in ("k", "M", "G"):
        if number and number % 1000 == 0:
            number, suffix = number // 1000, larger
    assert parse_whole(f"{number}{suffix}") == count
