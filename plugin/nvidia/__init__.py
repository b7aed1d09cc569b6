"""NVIDIA: the one folder that knows the vendor.

NVML, XIDs, MIG, container access and NVIDIA's own settings; knows no pod and no kubelet.
"""

from plugin.nvidia.vendor import NVIDIA

__all__ = ["NVIDIA"]
