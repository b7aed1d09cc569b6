"""What every test of the extender runs with."""

from __future__ import annotations

import os

import pytest

from extender.config import ENV_PREFIX


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch):
    """No setting of the machine that runs the tests may count."""
    for name in list(os.environ):
        if name.upper().startswith(ENV_PREFIX):
            monkeypatch.delenv(name)
