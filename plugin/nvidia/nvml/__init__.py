"""Reads a machine through NVML and the kernel.

Knows drivers and links; knows no settings and no container.
"""
