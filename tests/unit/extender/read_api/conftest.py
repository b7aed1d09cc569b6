"""What tests of the read API share."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def _frozen() -> Iterator[None]:
    """As the server does: the collector skips what lives for ever."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
