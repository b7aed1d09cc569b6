"""A cluster in memory that is its own API server, for the demo and for trying policies.

The same engine as on a live cluster; knows no client.
"""

from extender.embedded.engine import EmbeddedEngine, make_engine
from extender.embedded.spec import RESOURCE_NAME, ClusterSpec, lay_out, parse_cluster, read_cluster
from extender.embedded.state import EmbeddedCluster

__all__ = [
    "RESOURCE_NAME",
    "ClusterSpec",
    "EmbeddedCluster",
    "EmbeddedEngine",
    "lay_out",
    "make_engine",
    "parse_cluster",
    "read_cluster",
]
