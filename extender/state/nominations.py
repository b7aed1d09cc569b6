"""Which pending pods are nominated to which nodes.

kube-scheduler nominates a pod whose victims still leave. It knows no pod with a node and no device:
what a nomination claims is `extender.state.accounting`'s, and whether it still counts beside what
else is known of its pod is `extender.state.pods`'.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from extender.protocol import PodRequest

__all__ = ["Nomination", "Nominations"]


@dataclass(frozen=True, slots=True)
class Nomination:
    """A pending pod that is nominated to a node; `number` as a pod record's."""

    request: PodRequest
    node: str
    number: int


class Nominations:
    """The nominations, by pod and by node, to read; `changed` is called with each node concerned.

    A pod that was not nominated takes its number from `numbers`.
    """

    def __init__(self, numbers: Iterator[int], changed: Callable[[str], None]) -> None:
        self._numbers = numbers
        self._changed = changed
        self.by_uid: dict[str, Nomination] = {}
        self.by_node: dict[str, dict[str, Nomination]] = {}

    def add(self, request: PodRequest, node: str) -> None:
        """A pending pod is nominated to a node: the best set there is claimed for it."""
        old = self.by_uid.get(request.uid)
        if old is not None and old.node == node and old.request == request:
            return
        self.end(request.uid)
        if request.shape is not None:
            number = next(self._numbers) if old is None else old.number
            one = Nomination(request, node, number)
            self.by_uid[request.uid] = one
            self.by_node.setdefault(node, {})[request.uid] = one
            self._changed(node)

    def end(self, uid: str) -> None:
        """The pod is no longer nominated, is bound or is gone."""
        old = self.by_uid.pop(uid, None)
        if old is not None:
            self._changed(old.node)
            on_node = self.by_node[old.node]
            del on_node[uid]
            if not on_node:
                del self.by_node[old.node]

    def replace(self, nominated: Iterable[tuple[PodRequest, str]]) -> None:
        """A complete list: what is not in it is no longer nominated."""
        listed = {request.uid: (request, node) for request, node in nominated}
        for uid in [uid for uid in self.by_uid if uid not in listed]:
            self.end(uid)
        for request, node in listed.values():
            self.add(request, node)
