"""The contract's names: stable, distinct, and all under one prefix."""

from __future__ import annotations

from topology.annotations import pod_keys
from topology.model import names


def test_every_key_of_the_contract_bears_the_prefix() -> None:
    """The admission policy guards keys by this prefix."""
    keys = (*pod_keys.USER_KEYS, *names.OWN_KEYS)
    assert all(key.startswith("coterie.gpu/") for key in keys)
    assert len(set(keys)) == len(keys)
