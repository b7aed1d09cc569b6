"""Keeps the plugin's memory small.

Rating the sets of a machine of 16 GPUs takes some 10 MiB for a moment, which the C library would
keep. A full garbage collection takes some 50 ms with all that is imported, while the kubelet waits.
"""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import sys

__all__ = ["give_back", "skip_synchronous_client"]


def skip_synchronous_client() -> None:
    """Let `kubernetes.aio` be imported without the rest of its package; to be called before.

    The package's `__init__` imports its synchronous half, with requests, oauthlib and urllib3, of
    which nothing is used: 10 MB of a plugin whose goal is 100 MB
    (docs/adr/0037-libraries-as-they-are-meant.md). So it is registered without running that file.
    """
    for name in ("kubernetes", "kubernetes.aio"):
        spec = importlib.util.find_spec(name)
        if spec is not None:  # else the import says that it is missing
            sys.modules.setdefault(name, importlib.util.module_from_spec(spec))


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
