"""The contract's names: stable, distinct, and all under one prefix."""

from __future__ import annotations

from topology.annotations import pod_keys
from topology.model import names


def test_every_key_of_the_contract_bears_the_prefix() -> None:
    """The admission policy guards keys by this prefix."""
    written = (names.TOPOLOGY, names.DEVICES, names.PLAN, names.ALLOCATED, names.RETRY)
    keys = (*pod_keys.USER_KEYS, *written)
    assert all(key.startswith("coterie.gpu/") for key in keys)
    assert len(set(keys)) == 11


def test_the_keys_that_users_write_are_these() -> None:
    """They are the product's interface: a renamed key is a breaking change."""
    expected = (
        *("coterie.gpu/affinity", "coterie.gpu/policy", "coterie.gpu/min-bandwidth"),
        *("coterie.gpu/prefer", "coterie.gpu/nic", "coterie.gpu/group"),
    )
    assert expected == pod_keys.USER_KEYS
