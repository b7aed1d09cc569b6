"""One command's way to the cluster: kubeconfig, the extender's pod, its read API by port-forward.

The only package here that opens connections. It writes nothing to the cluster.
"""

from kubectl_coterie.cluster.find_extender import NAMESPACES, NoExtender
from kubectl_coterie.cluster.options import ClusterOptions
from kubectl_coterie.cluster.read_api import Change, ReadApiClient
from kubectl_coterie.cluster.reading import Object, Read, Reading
from kubectl_coterie.cluster.session import Session

__all__ = [
    "NAMESPACES",
    "Change",
    "ClusterOptions",
    "NoExtender",
    "Object",
    "Read",
    "ReadApiClient",
    "Reading",
    "Session",
]
