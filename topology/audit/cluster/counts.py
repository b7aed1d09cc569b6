"""Numbers of GPUs in a node's status and a container's resources.

What it answers: which extended resources are GPUs, and how many devices a quantity is. Devices of a
resource count as GPUs where its name behind the domain is `gpu`, or begins with `gpu.` (NVIDIA's
shared GPUs), and the MIG profiles of `nvidia.com/mig-...`. It knows no node and no pod.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topology.model import Field

__all__ = ["is_gpu_resource", "read_count"]

_GPU_RESOURCE = re.compile(r"[^/]+/gpu(?:\.[^/]+)?|nvidia\.com/mig-[^/]+")
_QUANTITY = re.compile(r"([0-9]{1,9})([kMG]?)", re.ASCII)
"""A whole quantity as the API server writes it: 1000 devices are 1k (apimachinery, DecimalSI)."""
_SCALES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}
_MOST_DEVICES = 10**9


def is_gpu_resource(resource: str) -> bool:
    """Whether a resource's devices are GPUs, shares or partitions of them.

    >>> [is_gpu_resource(one) for one in ("nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "cpu")]
    [True, True, False]
    """
    return _GPU_RESOURCE.fullmatch(resource) is not None


def read_count(field: Field) -> int:
    """Read a number of devices; what is none is an error of the field."""
    value = field.value
    quantity = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if quantity is not None:
        value = int(quantity[1]) * _SCALES[quantity[2]]
    if type(value) is int and 0 <= value < _MOST_DEVICES:
        return value
    return field.fail("a whole number of devices")
