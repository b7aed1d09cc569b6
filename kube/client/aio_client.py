"""The asyncio half of the official client, without the other half.

Exports the three names of `kubernetes.aio` that `kube.client.transport` uses. The package's own
`__init__` imports its synchronous half too, with requests, oauthlib and websocket-client, and that
of `kubernetes.aio` the dynamic client with urllib3, of which nothing is used (kubernetes 37.0.2).
So both packages are registered without running those files.

Figures (Python 3.11, 2 cores, medians of 5 fresh processes, all modules of the program imported):
the agent's resident memory is 82.2 MiB instead of 91.9 MiB, and needs 0.71 s of processor time
instead of 0.98, the extender 77.7 MiB instead of 86.2 and 1.00 s instead of 1.32. The agent's goal
is 100 MB.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

__all__ = ["ApiClient", "Configuration", "config", "register_package"]


def register_package(name: str) -> None:
    """Register a package without running its `__init__`; no effect where it is imported already."""
    if name in sys.modules:
        return
    spec = importlib.util.find_spec(name)
    if spec is None or spec.submodule_search_locations is None:
        return  # the imports below say that it is missing
    package = ModuleType(name)
    package.__spec__ = spec
    package.__path__ = spec.submodule_search_locations
    sys.modules[name] = package
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, package)


register_package("kubernetes")
register_package("kubernetes.aio")

from kubernetes.aio import config  # noqa: E402 - after the above
from kubernetes.aio.client import ApiClient, Configuration  # noqa: E402 - as above
