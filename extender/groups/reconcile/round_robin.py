"""Whose turn it is to be planned: each group once, before any is planned a second time.

One round of reconciliation plans a bounded number of members. The next one goes on where it
stopped, so that groups which find no room do not keep those behind them from ever being tried.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from extender.groups.members.group import Group, GroupKey

__all__ = ["RoundRobin"]

MAX_PLANNED = 128
"""Members planned at once, and the rest of their group; the others follow later."""
PAUSE_S = 0.05
"""After that bound was reached."""


class RoundRobin:
    """The groups that had their turn in this round; `next_s`: nothing is planned before."""

    def __init__(self) -> None:
        self._had_turn: set[GroupKey] = set()
        self.next_s = 0.0

    def go(self, groups: Sequence[Group], plan: Callable[[Group], int], now_s: float) -> None:
        """Call `plan` for groups that are due, in order; it returns how many members it tried."""
        if now_s < self.next_s:
            return
        due = [one for one in groups if one.is_due and one.next_plan_s <= now_s]
        first = [one for one in due if one.key not in self._had_turn]
        again = [one for one in due if one.key in self._had_turn]
        n_planned = 0
        for number, group in enumerate([*first, *again]):
            if number == len(first):
                self._had_turn.clear()
            if n_planned >= MAX_PLANNED:
                self.next_s = now_s + PAUSE_S
                return
            n_planned += plan(group)
            self._had_turn.add(group.key)
        self._had_turn.clear()
