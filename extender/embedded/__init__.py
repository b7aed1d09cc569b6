"""A cluster in memory, for the demo and for trying policies: its machines, and its API server.

Everything else is the live extender's: it lists, watches and binds here as it does on a real one.
"""

from extender.embedded.api_server import EmbeddedApi
from extender.embedded.nodes import node_facts, node_manifest, topology_text
from extender.embedded.spec import (
    RESOURCE_NAME,
    ClusterSpec,
    EmbeddedNode,
    lay_out,
    parse_cluster,
    read_cluster,
)

__all__ = [
    "RESOURCE_NAME",
    "ClusterSpec",
    "EmbeddedApi",
    "EmbeddedNode",
    "lay_out",
    "node_facts",
    "node_manifest",
    "parse_cluster",
    "read_cluster",
    "topology_text",
]
