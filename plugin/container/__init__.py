"""What a container gets with its devices, and CDI specifications, for any vendor's.

Values and texts; knows no vendor, no machine and no gRPC.
"""

from plugin.container.access import ContainerAccess, DeviceNode, Mount, NoAccess
from plugin.container.cdi import CdiDevice, CdiDocument, cdi_body, host_path, is_cdi_device

__all__ = [
    "CdiDevice",
    "CdiDocument",
    "ContainerAccess",
    "DeviceNode",
    "Mount",
    "NoAccess",
    "cdi_body",
    "host_path",
    "is_cdi_device",
]
