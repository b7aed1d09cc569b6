"""Requests to the API server and a kubelet: transport, the few writes, paged answers.

The only package that sees the client library; knows no watch.
"""

from kube.client.certificates import certificate_end_s
from kube.client.configuration import Endpoint
from kube.client.kubeconfig import Impersonation, read_kubeconfig
from kube.client.kubelet import (
    KUBELET_PORT,
    KubeletClient,
    kubelet_endpoint,
)
from kube.client.pages import Page, WatchEvent, read_event
from kube.client.port_forward import PortForward
from kube.client.server import ApiServer, Binding, ObjectEvent, PodReader
from kube.client.transport import (
    JSON,
    METADATA,
    METADATA_LIST,
    Request,
    Requester,
    Transport,
)

__all__ = [
    "JSON",
    "KUBELET_PORT",
    "METADATA",
    "METADATA_LIST",
    "ApiServer",
    "Binding",
    "Endpoint",
    "Impersonation",
    "KubeletClient",
    "ObjectEvent",
    "Page",
    "PodReader",
    "PortForward",
    "Request",
    "Requester",
    "Transport",
    "WatchEvent",
    "certificate_end_s",
    "kubelet_endpoint",
    "read_event",
    "read_kubeconfig",
]
