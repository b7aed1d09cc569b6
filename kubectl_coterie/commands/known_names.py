"""Names of nodes, pods and groups of the cluster, for completion.

Nodes and pods are asked of the API server, groups of the extender, which alone knows all of them.

Where the cluster does not answer within `TIMEOUT_S`, or refuses, there are none: completion says
nothing of errors.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kubectl_coterie.cluster import Session
from kubectl_coterie.commands.session_of import options_of
from kubectl_coterie.errors import CliError
from kubectl_coterie.options import make_parser
from kubectl_coterie.terminal import Progress
from topology.model import object_at, text_at

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["offered"]

TIMEOUT_S = 2.0
_NODES = {"node", "drain"}
_PODS = {"pod"}
_GROUPS = {"group"}
_BY_COMMAND = {"nodes": "node", "pods": "pod", "groups": "group"}


def offered(argument: str, words: Sequence[str]) -> Sequence[str]:
    """The names that an argument may have behind these words."""
    kind = _BY_COMMAND.get(words[0], "") if argument == "names" else argument
    if kind not in _NODES | _PODS | _GROUPS:
        return ()
    try:
        return asyncio.run(_names(kind, words))
    except (CliError, TimeoutError):
        return ()


async def _names(kind: str, words: Sequence[str]) -> list[str]:
    given = make_parser().parse_known_args([*words, "x"])[0]
    async with asyncio.timeout(TIMEOUT_S), Session(options_of(given), Progress()) as session:
        namespace = session.namespace
        if kind in _GROUPS:
            query = {} if namespace is None else {"namespace": namespace}
            api = await session.read_api()
            return [str(group["name"]) for group in await api.items("groups", query)]
        path = "/api/v1/nodes"
        if kind in _PODS:
            path = "/api/v1/pods" if namespace is None else f"/api/v1/namespaces/{namespace}/pods"
        found = await session.list_objects(path)
        return sorted(text_at(object_at(one, "metadata"), "name") for one in found)
