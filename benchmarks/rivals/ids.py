"""Policies that use ids only: the plain kubelet, and the lowest ids first.

They choose what a pod gets without any topology awareness. The kubelet without a preferred
allocation walks a Go map of device ids, whose order is random (kubernetes,
pkg/kubelet/cm/devicemanager/manager.go, `devicesToAllocate`); a uniform draw stands in for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.masks import mask_of, members
from benchmarks.rivals.base import Rival

if TYPE_CHECKING:
    from random import Random

    from topology.model import NodeTopology

__all__ = ["LowestIds", "PlainKubelet"]


class _RandomChooser:
    def choose(self, free: int, size: int, rng: Random, *, is_sensitive: bool = True) -> int | None:
        del is_sensitive
        gpus = members(free)
        return mask_of(rng.sample(gpus, size)) if size <= len(gpus) else None


class _LowestChooser:
    def choose(self, free: int, size: int, rng: Random, *, is_sensitive: bool = True) -> int | None:
        del rng, is_sensitive
        gpus = members(free)
        return mask_of(gpus[:size]) if size <= len(gpus) else None


class PlainKubelet(Rival):
    """Random ids: the kubelet with a device plugin that prefers nothing."""

    name = "plain kubelet (random ids)"

    def prepare(self, topology: NodeTopology) -> _RandomChooser:
        """Need nothing of the node."""
        del topology
        return _RandomChooser()


class LowestIds(Rival):
    """The first free ids in order: MAPA's "baseline"."""

    name = "lowest ids"

    def prepare(self, topology: NodeTopology) -> _LowestChooser:
        """Need nothing of the node."""
        del topology
        return _LowestChooser()
