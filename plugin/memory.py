"""Gives memory back that the process no longer needs.

What it answers: nothing. Rating the sets of a machine of 16 GPUs needs some 10 MiB for a moment,
which the C library would keep for later; the agent runs on every node, and its memory is counted.
"""

from __future__ import annotations

import ctypes

__all__ = ["give_back"]


def give_back() -> None:
    """Return free memory to the system, where the C library can (glibc, malloc_trim(3))."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
