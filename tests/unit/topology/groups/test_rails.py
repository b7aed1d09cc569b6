"""NIC positions, and the choice between equal sets by them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.errors import InvalidRequest
from topology.groups import choose_on_rails, gpu_rails, rails_of
from topology.recordings import load_recording

H100 = load_recording("dgx-h100")


@pytest.mark.parametrize(
    ("recording", "expected"),
    [
        pytest.param("dgx-h100", (1, 2, 4, 8, 16, 32, 64, 128), id="one NIC for each GPU"),
        pytest.param("8x-b200", (3, 3, 12, 12, 48, 48, 192, 192), id="two for each pair"),
        pytest.param("8x-mi50-pcie-2nic", (1, 1, 1, 1, 2, 2, 2, 2), id="one for each four"),
        pytest.param("4x-l40s", (0, 0, 0, 0), id="none near"),
        pytest.param("summit", (0,) * 6, id="none recorded"),
    ],
)
def test_positions_follow_the_gpus(recording, expected):
    """The first GPU's NIC is position 0, whatever it is called."""
    assert gpu_rails(load_recording(recording)) == expected


@given(order=st.permutations(range(8)))
def test_positions_do_not_depend_on_the_order_or_names_of_nics(order):
    """Nodes of one machine type may list and name their NICs otherwise."""
    renamed = [replace(H100.nics[i], name=f"rdma{k}") for k, i in enumerate(order)]
    assert gpu_rails(replace(H100, nics=tuple(renamed))) == gpu_rails(H100)


@pytest.mark.parametrize(
    ("candidates", "used", "expected"),
    [
        pytest.param([0b1100, 0b0011], 0, 0b0011, id="first node: lowest GPUs"),
        pytest.param([0b0011, 0b1100], 0b1100, 0b1100, id="the positions in use"),
        pytest.param([0b0011, 0b0110], 0b0010, 0b0011, id="as many in use: lowest GPUs"),
        pytest.param([0b0011, 0b0110], 0b0110, 0b0110, id="most in use"),
        pytest.param([0b10000001, 0b11000000], 0b1, 0b10000001, id="part in use"),
    ],
)
def test_a_set_on_the_groups_rails_is_chosen(candidates, used, expected):
    """Between sets that are worth the same."""
    assert choose_on_rails(candidates, gpu_rails(H100), used) == expected


def test_distinct_nics_come_before_rails_in_use():
    """Two GPUs behind one NIC share its rate: that costs the whole group."""
    rails = (1, 1, 2, 2)
    assert choose_on_rails([0b0011, 0b0101], rails, used=0b01) == 0b0101


def test_no_candidate_is_an_error(check_message):
    """The caller has sets, or does not call."""
    with pytest.raises(InvalidRequest) as caught:
        choose_on_rails([], (1, 2), 0)
    check_message(caught.value)


MASKS = st.lists(st.integers(1, 2**8 - 1), min_size=1, max_size=12, unique=True)
RAILS = st.lists(st.integers(0, 2**6 - 1), min_size=8, max_size=8)


@given(candidates=MASKS, rails=RAILS, used=st.integers(0, 2**6 - 1), data=st.data())
def test_the_choice_is_the_best_by_brute_force_in_any_order(candidates, rails, used, data):
    """No candidate has more distinct NICs, nor as many with fewer positions that are not in use."""
    chosen = choose_on_rails(candidates, rails, used)
    own = rails_of(rails, chosen)
    for other in (rails_of(rails, mask) for mask in candidates):
        assert other.bit_count() <= own.bit_count()
        if other.bit_count() == own.bit_count():
            assert (own & ~used).bit_count() <= (other & ~used).bit_count()
    assert choose_on_rails(data.draw(st.permutations(candidates)), rails, used) == chosen


@given(rails=RAILS, masks=st.tuples(st.integers(0, 255), st.integers(0, 255)))
def test_the_rails_of_a_union_are_the_union_of_rails(rails, masks):
    """So a group's positions may be added up node by node."""
    one, other = masks
    assert rails_of(rails, one | other) == rails_of(rails, one) | rails_of(rails, other)
