"""Keeps the plugin's memory small.

Rating the sets of a machine of 16 GPUs takes some 10 MiB for a moment, which the C library would
keep. A full garbage collection takes some 50 ms with all that is imported, while the kubelet waits.
"""

from __future__ import annotations

import ctypes
import gc

__all__ = ["give_back"]


def give_back() -> None:
    """Return free memory to the system, where the C library can (glibc, malloc_trim(3)).

    Objects that exist now are left out of garbage collection until the next call.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
