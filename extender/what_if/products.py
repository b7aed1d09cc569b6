"""Whether a node's GPUs are of the model that a pod's nodeSelector names.

By the label of NVIDIA's GPU feature discovery, in which blanks of the driver's name of the GPU are
hyphens, with a suffix where GPUs are shared in time. No other label is known here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from extender.snapshot import NodeKind

__all__ = ["OTHER_PRODUCT", "OTHER_PRODUCT_LABEL", "PRODUCT", "is_product"]

PRODUCT = "nvidia.com/gpu.product"
"""The label."""
OTHER_PRODUCT = "the node's GPUs are of another model than the pod's nodeSelector names"
OTHER_PRODUCT_LABEL = "other_product"


def is_product(kind: NodeKind, product: str) -> bool | None:
    """Whether all GPUs of a kind are of this model; None where that is not known."""
    if kind.machine is None:
        return None
    models = {gpu.model for gpu in kind.machine.selector.topology.gpus}
    if None in models:
        return None
    return {_label(model) for model in models if model is not None} == {_label(product)}


def _label(model: str) -> str:
    return "-".join(model.split()).removesuffix("-SHARED")
