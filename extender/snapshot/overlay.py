"""A node as it would be: what preempt, what-ifs, explanations and plans of groups ask.

The view of a node with what each pod there would free, and views with devices in use, kept for
others or free. Values in, values out: no snapshot and no state is changed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from extender.snapshot.cluster_snapshot import NodeView, with_free, with_masks

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

__all__ = ["Overlay", "emptied", "freeing", "only", "taking"]


@dataclass(frozen=True, slots=True)
class Overlay:
    """A node's view, and the masks that its pods would free, by uid or by name.

    `held` has every pod with devices there, those that are only claimed left out; 0 for one that
    has unhealthy ones alone, which its end does not free.
    """

    view: NodeView
    held: Mapping[str, int]

    def freed(self, pods: Iterable[str]) -> int:
        """The mask of what these pods would free; others than those that are here free nothing."""
        mask = 0
        for pod in pods:
            mask |= self.held.get(pod, 0)
        return mask

    def free_without(self, pods: Iterable[str]) -> int:
        """The mask of what is free once these pods are gone."""
        return self.view.free | self.freed(pods)

    def without(self, pods: Collection[str]) -> Self:
        """The node once these pods are gone."""
        held = {pod: mask for pod, mask in self.held.items() if pod not in pods}
        return replace(self, view=with_free(self.view, self.free_without(pods)), held=held)

    def named(self, name_of: Callable[[str], str]) -> Overlay:
        """The same by the pods' names, uids where they have none; those that free something."""
        held: dict[str, int] = {}
        for uid, mask in self.held.items():
            if mask:
                name = name_of(uid) or uid
                held[name] = held.get(name, 0) | mask
        return Overlay(self.view, held)


def taking(view: NodeView, used: int) -> NodeView:
    """The node with these devices in use, whether they were free or kept for their pod."""
    return with_masks(view, free=view.free & ~used, reserved=view.reserved & ~used)


def only(view: NodeView, mask: int) -> NodeView:
    """The node with all other devices kept for others; its kubelet has them free still."""
    return with_masks(view, free=view.free & mask, reserved=view.reserved | view.free & ~mask)


def freeing(view: NodeView, mask: int) -> NodeView:
    """The node with these devices free too, and none of them kept."""
    return with_free(view, view.free | mask)


def emptied(view: NodeView) -> NodeView:
    """The node with all of its devices free."""
    return freeing(view, (1 << len(view.ids)) - 1)
