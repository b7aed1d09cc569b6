"""Sets of nodes as masks."""

from __future__ import annotations

import pytest

from extender.pending.node_bitmap import NodeNumbers


def test_each_node_has_one_number_for_good():
    """Masks that were made before stay true when nodes come."""
    numbers = NodeNumbers()
    assert numbers.mask(["a", "b"]) == 0b11
    assert numbers.mask(["c", "a"]) == 0b101
    assert numbers.mask(iter(["b", "b"])) == 0b10
    assert numbers.mask([]) == 0
    assert len(numbers) == 3


@pytest.mark.parametrize(
    ("mask", "at_most", "names"),
    [
        pytest.param(0, 3, [], id="none"),
        pytest.param(0b1010, 3, ["n1", "n3"], id="all that there are"),
        pytest.param(1 << 69 | 0b111, 2, ["n2", "n69"], id="the last ones"),
    ],
)
def test_of_a_mask_those_numbered_last_are_named(mask, at_most, names):
    """In the order of their numbers; beyond one machine word too."""
    numbers = NodeNumbers()
    numbers.mask(f"n{i}" for i in range(70))
    assert numbers.latest(mask, at_most=at_most) == names
