"""Keeps the process small: the agent runs on every node, and its memory is counted.

What it answers: nothing. Rating the sets of a machine of 16 GPUs needs some 10 MiB for a moment,
which the C library would keep for later. Some libraries load others wherever they find them, for
what a daemon never does. And the kubelet waits while the collector looks at what lasts: some 50 ms
for all that is imported, whenever enough has come and gone.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import ModuleType

__all__ = ["give_back", "import_without"]


def give_back() -> None:
    """Return free memory to the system, where the C library can (glibc, malloc_trim(3)).

    What is there now the collector leaves alone from then on, until the next time.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
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
