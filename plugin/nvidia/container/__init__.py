"""What a container gets with NVIDIA GPUs: variables, mounts, device nodes, CDI.

Knows device files and NVIDIA's runtime; knows no NVML.
"""
