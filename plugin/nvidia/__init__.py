"""NVIDIA: the one folder that knows the vendor.

NVML, XIDs, container access and NVIDIA's own settings; knows no pod and no kubelet.
"""
