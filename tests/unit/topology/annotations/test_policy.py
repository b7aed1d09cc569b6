"""A pod's annotations: each value of the contract is read, and nothing else is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.annotations import (
    DEFAULT_POLICY,
    POD_KEYS,
    USER_KEYS,
    Affinity,
    NicRule,
    PlacementPolicy,
    Prefer,
    Strength,
    is_remainder_first,
    parse_policy,
    pod_keys,
)
from topology.errors import PolicyError
from topology.model import names

if TYPE_CHECKING:
    from tests.messages import CheckMessage


def test_a_pod_without_annotations_has_the_default_policy() -> None:
    """Most pods carry none; keys of others are none of our business."""
    assert parse_policy({}) == DEFAULT_POLICY
    assert parse_policy({"example.com/affinity": "nvlink"}) == DEFAULT_POLICY


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        *(
            pytest.param("affinity", a.value, PlacementPolicy(affinity=a), id=f"affinity {a.value}")
            for a in (Affinity.NVLINK, Affinity.PCIE_SWITCH, Affinity.NUMA, Affinity.NONE)
        ),
        *(
            pytest.param("policy", s.value, PlacementPolicy(strength=s), id=f"policy {s.value}")
            for s in Strength
        ),
        *(
            pytest.param("prefer", p.value, PlacementPolicy(prefer=p), id=f"prefer {p.value}")
            for p in Prefer
        ),
        *(
            pytest.param("nic", n.value, PlacementPolicy(nic=n), id=f"nic {n.value}")
            for n in (NicRule.PREFERRED, NicRule.REQUIRED)
        ),
        pytest.param(
            "min-bandwidth",
            "40",
            PlacementPolicy(min_bandwidth_gbytes_per_s=40.0),
            id="bandwidth as an integer",
        ),
        pytest.param(
            "min-bandwidth",
            "37.5",
            PlacementPolicy(min_bandwidth_gbytes_per_s=37.5),
            id="bandwidth with a fraction",
        ),
        pytest.param("group", "ring", DEFAULT_POLICY, id="a group chooses no set"),
        pytest.param("plan", "{}", DEFAULT_POLICY, id="a key that Coterie writes"),
    ],
)
def test_each_value_of_the_contract_is_read(
    key: str, value: str, expected: PlacementPolicy
) -> None:
    """The table of values is the product's interface."""
    assert parse_policy({names.PREFIX + key: value}) == expected


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param("affinity", "nvlnk", id="typing error"),
        pytest.param("affinity", "switch", id="a switch of which kind?"),
        pytest.param("affinity", "any", id="the absent value cannot be written"),
        pytest.param("affinity", "NVLink", id="values are lower case"),
        pytest.param("affinity", "", id="empty"),
        pytest.param("policy", "must", id="policy"),
        pytest.param("prefer", "cheap", id="prefer"),
        pytest.param("nic", "unset", id="nic"),
        pytest.param("min-bandwidth", "0", id="zero"),
        pytest.param("min-bandwidth", "-4", id="negative"),
        pytest.param("min-bandwidth", "nan", id="nan"),
        pytest.param("min-bandwidth", "1e999", id="infinite"),
        pytest.param("min-bandwidth", "1_0", id="underscore"),
        pytest.param("min-bandwidth", " 4", id="blank"),
        pytest.param("min-bandwidth", "40GB/s", id="unit"),
        pytest.param("min-bandwidth", "٤", id="digits of another script"),
        pytest.param("min-bandwidth", "9" * 100, id="huge"),
        pytest.param("afinity", "nvlink", id="unknown key"),
    ],
)
def test_any_other_value_is_an_error_that_names_key_value_and_expectation(
    key: str, value: str, check_message: CheckMessage
) -> None:
    """A silent default would place the pod as if the user had requested nothing."""
    with pytest.raises(PolicyError) as caught:
        parse_policy({names.PREFIX + key: value})
    assert names.PREFIX + key in str(caught.value)
    check_message(caught.value)


def test_a_long_value_is_cut_in_the_message() -> None:
    """Events hold 1,024 characters; the value must not push the expectation out."""
    with pytest.raises(PolicyError) as caught:
        parse_policy({pod_keys.AFFINITY: "x" * 10_000})
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("floor", [0.0, -1.0, float("inf"), float("nan")])
def test_a_policy_value_checks_itself(floor: float, check_message: CheckMessage) -> None:
    """Programs build policies too, not only annotations."""
    with pytest.raises(PolicyError) as caught:
        PlacementPolicy(min_bandwidth_gbytes_per_s=floor)
    check_message(caught.value)


@pytest.mark.parametrize(
    ("policy", "size", "expected"),
    [
        pytest.param(DEFAULT_POLICY, 1, True, id="a single GPU is packed"),
        pytest.param(DEFAULT_POLICY, 2, False, id="two GPUs get their best set"),
        pytest.param(PlacementPolicy(affinity=Affinity.NONE), 4, True, id="who does not care"),
        pytest.param(
            PlacementPolicy(min_bandwidth_gbytes_per_s=40.0), 4, True, id="enough is enough"
        ),
        pytest.param(
            PlacementPolicy(affinity=Affinity.NVLINK, min_bandwidth_gbytes_per_s=40.0),
            4,
            False,
            id="an affinity goes before the lower bound",
        ),
    ],
)
def test_which_pods_get_what_harms_others_least(
    policy: PlacementPolicy, size: int, expected: bool
) -> None:
    """Remainder first is for pods to which the best set is worth nothing more."""
    assert is_remainder_first(policy, size) is expected


@pytest.mark.parametrize("key", POD_KEYS, ids=lambda key: key.name)
def test_the_table_is_complete(key: pod_keys.PodKey) -> None:
    """Reference, admission policy and messages are made from it: an empty cell is a gap there."""
    key.read(key.example)
    assert all((key.summary, key.default, key.values))
    assert bool(key.expected) == bool(key.choices or key.patterns)
    assert key.field is None or hasattr(DEFAULT_POLICY, key.field)


def test_no_two_keys_set_the_same_field() -> None:
    """The later one would hide the earlier one."""
    fields = [key.field for key in POD_KEYS if key.field]
    assert len({*fields}) == len(fields)


@given(
    annotations=st.dictionaries(
        st.one_of(st.text(), st.sampled_from(USER_KEYS), st.text().map(names.PREFIX.__add__)),
        st.one_of(st.text(), st.sampled_from(["nvlink", "required", "37.5", "fastest"])),
    )
)
def test_only_policy_errors_come_out(annotations: dict[str, str]) -> None:
    """Annotations are the one text that any user of the cluster can write."""
    try:
        policy = parse_policy(annotations)
    except PolicyError:
        return
    assert isinstance(policy, PlacementPolicy)
