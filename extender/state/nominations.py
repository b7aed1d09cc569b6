"""Which pending pods are nominated to which nodes.

kube-scheduler nominates a pod whose victims still leave. It knows no pod with a node and no device:
what a nomination claims is `extender.state.accounting`'s, and whether it still counts beside what
else is known of its pod is `extender.state.pods`'.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from extender.protocol import PodRequest

__all__ = ["Nomination", "Nominations"]


@dataclass(frozen=True, slots=True)
class Nomination:
    """A pending pod that is nominated to a node; `number` as a pod record's."""

    request: PodRequest
    node: str
    number: int


class Nominations:
    """The nominations, by pod and by node; `changed` is called with each node that one concerns.

    A pod that was not nominated takes its number from `numbers`.
    """

    def __init__(self, numbers: Iterator[int], changed: Callable[[str], None]) -> None:
        self._numbers = numbers
        self._changed = changed
        self._by_uid: dict[str, Nomination] = {}
        self._by_node: dict[str, dict[str, Nomination]] = {}

    def get(self, uid: str) -> Nomination | None:
        """The nomination of a pod, or None."""
        return self._by_uid.get(uid)

    def to(self, node: str) -> Mapping[str, Nomination]:
        """The nominations to a node, by uid."""
        return self._by_node.get(node, _NONE)

    def add(self, request: PodRequest, node: str) -> None:
        """A pending pod is nominated to a node: the best set there is claimed for it."""
        old = self._by_uid.get(request.uid)
        if old is not None and old.node == node and old.request == request:
            return
        self.end(request.uid)
        if request.shape is not None:
            number = next(self._numbers) if old is None else old.number
            one = Nomination(request, node, number)
            self._by_uid[request.uid] = one
            self._by_node.setdefault(node, {})[request.uid] = one
            self._changed(node)

    def end(self, uid: str) -> None:
        """The pod is no longer nominated, is bound or is gone."""
        old = self._by_uid.pop(uid, None)
        if old is not None:
            self._changed(old.node)
            on_node = self._by_node[old.node]
            del on_node[uid]
            if not on_node:
                del self._by_node[old.node]

    def replace(self, nominated: Iterable[tuple[PodRequest, str]]) -> None:
        """A complete list: what is not in it is no longer nominated."""
        listed = {request.uid: (request, node) for request, node in nominated}
        for uid in [uid for uid in self._by_uid if uid not in listed]:
            self.end(uid)
        for request, node in listed.values():
            self.add(request, node)

    def pod_changed(self, uid: str) -> None:
        """Something else became known of a pod, or is known no longer."""
        one = self._by_uid.get(uid)
        if one is not None:
            self._changed(one.node)


_NONE: Mapping[str, Nomination] = {}
