"""docs/configuration.md says what the code reads: annotation keys, their values."""

from __future__ import annotations

import re

import pytest

from tests.docs.markdown import ROOT
from topology import names
from topology.policy import Affinity, NicRule, Prefer, Strength

PAGE = ROOT / "docs" / "configuration.md"


def annotation_rows() -> dict[str, list[str]]:
    """The table of pod annotations: key to the values that it names."""
    page = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(coterie\.gpu/[a-z-]+)` \| ([^|]+) \|", page, re.MULTILINE)
    return {key: re.findall(r"`([^`]+)`", values) for key, values in rows}


def test_every_key_of_users_is_documented():
    """A key that the program reads and the page leaves out would never be used."""
    assert tuple(annotation_rows()) == names.USER_KEYS


@pytest.mark.parametrize(
    ("key", "values"),
    [
        pytest.param(names.AFFINITY, set(Affinity) - {Affinity.ANY}, id="any is the absent key"),
        pytest.param(names.POLICY, set(Strength), id="policy"),
        pytest.param(names.PREFER, set(Prefer), id="prefer"),
        pytest.param(names.NIC, set(NicRule) - {NicRule.UNSET}, id="unset is the absent key"),
    ],
)
def test_every_value_is_documented(key, values):
    """The page and the enums name the same closed set."""
    assert set(annotation_rows()[key]) == {value.value for value in values}
