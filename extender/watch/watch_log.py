"""Logs what the watches report.

Each complete list and each failed attempt has a line. An object that cannot be read has one per
fault, however often it is seen: it stays broken over thousands of events, and a line for each would
hide everything else.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from extender import logkeys

if TYPE_CHECKING:
    from kube.log import Logger
    from kube.objects import ObjectKey
    from kube.watch import Fault

__all__ = ["WatchLog"]

MAX_KNOWN_FAULTS = 10_000
"""Faults of objects that were logged already."""


class WatchLog:
    """Writes the lines."""

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._logged: OrderedDict[tuple[str, ObjectKey, str], None] = OrderedDict()

    def listed(self, source: str, n_objects: int) -> None:
        """A collection was listed in full."""
        self._log.info(logkeys.WATCH_LISTED, source=source, n_objects=n_objects)

    def failed(self, fault: Fault) -> None:
        """A list or watch failed and will be tried again."""
        self._log.warning(
            logkeys.WATCH_ERROR,
            source=fault.source,
            detail=str(fault.error),
            delay_s=round(fault.delay_s, 3),
            will_list=fault.will_list,
        )

    def unread(self, source: str, key: ObjectKey, reason: str) -> None:
        """An object cannot be read, for this reason."""
        fault = source, key, reason
        if fault in self._logged:
            self._logged.move_to_end(fault)
            return
        self._logged[fault] = None
        if len(self._logged) > MAX_KNOWN_FAULTS:
            self._logged.popitem(last=False)
        self._log.warning(
            logkeys.OBJECT_UNREADABLE,
            source=source,
            object=f"{key.namespace}/{key.name}" if key.namespace else key.name,
            detail=reason,
        )
