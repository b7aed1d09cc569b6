"""Fixtures of the plugin's tests."""

from __future__ import annotations

import pytest


@pytest.fixture
def root(tmp_path_factory):
    """A folder with a path short enough for unix sockets in it: 107 bytes at most (unix(7))."""
    return tmp_path_factory.mktemp("k")
