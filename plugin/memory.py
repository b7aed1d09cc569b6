"""Keeps the process small: the agent runs on every node, and its memory is counted.

What it answers: nothing. Rating the sets of a machine of 16 GPUs needs some 10 MiB for a moment,
which the C library would keep for later. Some libraries load others wherever they find them, for
what a daemon never does.
"""

from __future__ import annotations

import ctypes
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import ModuleType

__all__ = ["give_back", "import_without"]


def give_back() -> None:
    """Return free memory to the system, where the C library can (glibc, malloc_trim(3))."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


@contextmanager
def import_without(package: str) -> Generator[None]:
    """Have imports inside find no such package, unless it is there already.

    None in place of a module is Python's own way to say so (reference, "The module cache").
    """
    if package in sys.modules:
        yield
        return
    sys.modules[package] = cast("ModuleType", None)
    try:
        yield
    finally:
        del sys.modules[package]
