"""The asyncio half of the official client, without the other half.

What it answers: the three names of `kubernetes.aio` that `kube.client.transport` stands on. The
package's own `__init__` imports its synchronous half too, with requests, oauthlib and
websocket-client, and that of `kubernetes.aio` the dynamic client with urllib3: 9 MiB and 0.1 s in
every process, of which nothing is used (kubernetes 37.0.2). So both packages are entered without
running those files; their modules are found as ever.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

__all__ = ["ApiClient", "Configuration", "config"]


def _enter_package(name: str) -> None:
    """Have a package whose `__init__` has not run; nothing where somebody has imported it."""
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


_enter_package("kubernetes")
_enter_package("kubernetes.aio")

from kubernetes.aio import config  # noqa: E402 - after the above
from kubernetes.aio.client import ApiClient, Configuration  # noqa: E402 - as above
