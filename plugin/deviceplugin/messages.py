"""Values as messages of the device plugin API v1beta1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.pb import deviceplugin_v1beta1_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plugin.container import ContainerAccess
    from plugin.deviceplugin.device_list import ListedDevice

__all__ = ["OPTIONS", "access_message", "device_list_message"]

# The words of k8s.io/kubelet v0.36.3, pkg/apis/deviceplugin/v1beta1/constants.go.
_HEALTHY = "Healthy"
_UNHEALTHY = "Unhealthy"

OPTIONS = pb.DevicePluginOptions(get_preferred_allocation_available=True)
"""Which calls the kubelet makes: no PreStartContainer."""


def device_list_message(devices: Sequence[ListedDevice]) -> pb.ListAndWatchResponse:
    """The message that lists these devices."""
    return pb.ListAndWatchResponse(devices=[_device(device) for device in devices])


def access_message(access: ContainerAccess) -> pb.ContainerAllocateResponse:
    """The message that gives a container its access."""
    return pb.ContainerAllocateResponse(
        envs=access.env,
        mounts=[
            pb.Mount(
                container_path=mount.container_path,
                host_path=mount.host_path,
                read_only=mount.is_read_only,
            )
            for mount in access.mounts
        ],
        devices=[
            pb.DeviceSpec(
                container_path=node.container_path,
                host_path=node.host_path,
                permissions=node.permissions,
            )
            for node in access.device_nodes
        ],
        annotations=access.annotations,
        cdi_devices=[pb.CDIDevice(name=name) for name in access.cdi_devices],
    )


def _device(device: ListedDevice) -> pb.Device:
    health = _HEALTHY if device.is_healthy else _UNHEALTHY
    if device.numa_node is None:
        return pb.Device(ID=device.id, health=health)
    topology = pb.TopologyInfo(nodes=[pb.NUMANode(ID=device.numa_node)])
    return pb.Device(ID=device.id, health=health, topology=topology)
