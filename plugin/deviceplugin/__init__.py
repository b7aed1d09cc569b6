"""The kubelet's device plugin API v1beta1 over gRPC: server, registration, messages.

Knows the protocol; an `Allocator` decides which devices are allocated.
"""

from plugin.deviceplugin.device_list import DeviceList, ListedDevice
from plugin.deviceplugin.kubelet_socket import KubeletSocket
from plugin.deviceplugin.offer import CallRefused, Offer
from plugin.deviceplugin.registration import Registration, RegistrationChange, RegistrationPhase
from plugin.deviceplugin.server import (
    SOCKET_NAMES,
    ResourceServer,
    Serving,
    is_served,
    socket_names,
)
from plugin.deviceplugin.service import CallOutcome, DevicePluginCall, DevicePluginMethod

__all__ = [
    "SOCKET_NAMES",
    "CallOutcome",
    "CallRefused",
    "DeviceList",
    "DevicePluginCall",
    "DevicePluginMethod",
    "KubeletSocket",
    "ListedDevice",
    "Offer",
    "Registration",
    "RegistrationChange",
    "RegistrationPhase",
    "ResourceServer",
    "Serving",
    "is_served",
    "socket_names",
]
