"""The kubelet's device plugin API v1beta1 over gRPC: server, registration, messages.

Knows the protocol; asks others which devices to give.
"""

from plugin.deviceplugin.device_list import ListedDevice, Listing
from plugin.deviceplugin.kubelet_socket import KubeletSocket
from plugin.deviceplugin.offer import Offer, Refused
from plugin.deviceplugin.registration import Phase, Registration, Standing
from plugin.deviceplugin.server import ResourceServer, endpoint_of
from plugin.deviceplugin.service import Call, CallOutcome, Verb

__all__ = [
    "Call",
    "CallOutcome",
    "KubeletSocket",
    "ListedDevice",
    "Listing",
    "Offer",
    "Phase",
    "Refused",
    "Registration",
    "ResourceServer",
    "Standing",
    "Verb",
    "endpoint_of",
]
