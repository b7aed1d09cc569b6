"""NVIDIA: the one folder that knows the vendor.

NVML, XIDs, MIG, container access and NVIDIA's own settings; knows no pod and no kubelet.
"""

from plugin.nvidia.settings import NvidiaSettings
from plugin.nvidia.vendor import VENDOR

__all__ = ["VENDOR", "NvidiaSettings"]
