"""Pods that are known to be gone, or to have a node, for some seconds after that was seen.

kube-scheduler may call filter for such a pod still: its own watch is behind, or the call was on its
way. A member that joined so would stay until it was forgotten again.
"""

from __future__ import annotations

__all__ = ["Departed"]

DEPARTED_S = 10.0
"""How long kube-scheduler may call filter for a pod that was seen to be gone: it does so once, in a
cycle that has begun, or until its own watch has caught up."""
MAX_DEPARTED = 100_000
"""Pods that are remembered; the oldest are dropped."""


class Departed:
    """Their uids, since when; None where no time has passed since."""

    def __init__(self) -> None:
        self._since_s: dict[str, float | None] = {}

    def __contains__(self, uid: str) -> bool:
        """Whether the pod has left lately."""
        return uid in self._since_s

    def add(self, uid: str) -> None:
        """A pod is gone, or has a node."""
        self._since_s.setdefault(uid, None)
        if len(self._since_s) > MAX_DEPARTED:
            del self._since_s[next(iter(self._since_s))]

    def discard(self, uid: str) -> None:
        """A watch shows it after all."""
        self._since_s.pop(uid, None)

    def expire(self, now_s: float) -> None:
        """Forget those that left long ago: the first ones, as they came in order."""
        for uid, since_s in tuple(self._since_s.items()):
            if since_s is None:
                self._since_s[uid] = now_s
            elif since_s + DEPARTED_S <= now_s:
                del self._since_s[uid]
