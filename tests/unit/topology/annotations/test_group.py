"""The group that a pod's annotations name, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from topology.annotations import POD_KEYS, GroupWish, Strength, parse_group, pod_keys
from topology.errors import PolicyError
from topology.model import names

if TYPE_CHECKING:
    from tests.messages import CheckMessage


def keys(**short: str) -> dict[str, str]:
    """Annotations by their short names."""
    return {names.PREFIX + key.replace("_", "-"): value for key, value in short.items()}


@pytest.mark.parametrize(
    ("annotations", "wish"),
    [
        pytest.param({}, None, id="none"),
        pytest.param(keys(affinity="numa"), None, id="another key"),
        pytest.param(keys(group="g"), GroupWish("g"), id="without a size nobody waits"),
        pytest.param(keys(group="a.b-7", group_size="12"), GroupWish("a.b-7", 12), id="a size"),
        pytest.param(
            keys(group="g", group_domain="nvlink-domain", group_policy="required"),
            GroupWish("g", None, "nvlink-domain", Strength.REQUIRED),
            id="a domain that must be",
        ),
    ],
)
def test_a_group_is_read_whole(annotations: dict[str, str], wish: GroupWish | None) -> None:
    """Each key has its field, and what is absent its default."""
    assert parse_group(annotations) == wish


@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param(keys(group="Train"), id="upper case"),
        pytest.param(keys(group=""), id="no name"),
        pytest.param(keys(group="g", group_size="0"), id="nobody"),
        pytest.param(keys(group="g", group_domain="A"), id="a domain"),
        pytest.param(keys(group="g", group_policy="must"), id="a policy"),
    ],
)
def test_other_values_are_errors(annotations: dict[str, str], check_message: CheckMessage) -> None:
    """A silent default would place the members as strangers."""
    with pytest.raises(PolicyError) as caught:
        parse_group(annotations)
    check_message(caught.value)


@pytest.mark.parametrize("key", [one for one in POD_KEYS if one.needs], ids=lambda one: one.name)
def test_a_key_that_needs_another_is_refused_alone(key: pod_keys.PodKey) -> None:
    """It would be ignored in silence."""
    with pytest.raises(PolicyError) as caught:
        parse_group({key.name: key.example})
    assert f"annotation {key.name} is '{key.example}', expected {key.needs} too" in str(
        caught.value
    )
