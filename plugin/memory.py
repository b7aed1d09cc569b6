"""Keeps the process small: the agent runs on every node, and its memory is counted.

What it answers: nothing. Rating the sets of a machine of 16 GPUs needs some 10 MiB for a moment,
which the C library would keep for later. And the kubelet waits while the collector looks at what
lasts: some 50 ms for all that is imported, whenever enough has come and gone.
"""

from __future__ import annotations

import ctypes
import gc

__all__ = ["give_back"]


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
