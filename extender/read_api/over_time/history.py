"""Capacity and efficiency of the last 7 days by machine type, a point a minute, in memory.

A restart loses it, and the answer says so; Prometheus keeps the same for longer
(`coterie_extender_placeable_sets`, `coterie_extender_stranded_devices`).
"""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from extender.read_api.encoding import encoder, joined, spliced
from extender.read_api.over_time.bodies import HistoryBody, MachineHistory, Point

if TYPE_CHECKING:
    from collections.abc import Iterator

    from extender.read_api.cluster_table import Cluster
    from extender.read_api.sums import TallyKey

__all__ = ["INTERVAL_S", "History"]

INTERVAL_S = 60
KEPT_S = 7 * 24 * 3600
MAX_POINTS = KEPT_S // INTERVAL_S
"""Points of a machine type: 10,080 of 56 bytes."""
MAX_MACHINES = 64
"""Machine types that are kept, 36 MB at most; further ones are left out until others are old."""
_WIDTH = 7
"""Numbers of a point: Unix seconds, free, stranded, sets of 2, 4 and 8, efficiency (NaN: none)."""
_CHUNK_POINTS = 200
_encode, _encode_machine = encoder(HistoryBody), encoder(MachineHistory)
_encode_points = encoder(list[Point])


@dataclass(slots=True)
class _Points:
    """The points of one machine type, one after the other."""

    numbers: array[float] = field(default_factory=lambda: array("d"))

    def drop_before(self, at_s: float) -> None:
        n_old = self.first_from(at_s)
        del self.numbers[: n_old * _WIDTH]

    def first_from(self, at_s: float) -> int:
        """The index of the first point that is not before a time. O(log points)."""
        begin, end = 0, len(self.numbers) // _WIDTH
        while begin < end:
            middle = (begin + end) // 2
            if self.numbers[middle * _WIDTH] < at_s:
                begin = middle + 1
            else:
                end = middle
        return begin

    def chunks(self, since_s: float) -> Iterator[bytes]:
        """The points from a time on as JSON, in parts."""
        for begin in range(self.first_from(since_s) * _WIDTH, len(self.numbers), _SPAN):
            part = self.numbers[begin : begin + _SPAN]
            points = (part[i : i + _WIDTH] for i in range(0, len(part), _WIDTH))
            yield _encode_points([*map(_point, points)])[1:-1]


_SPAN = _CHUNK_POINTS * _WIDTH


class History:
    """The points of all machine types; `began_s` is when it began."""

    def __init__(self, began_s: float) -> None:
        self._began_s = began_s
        self._kept: dict[TallyKey, _Points] = {}
        self.revision = 0

    def add(self, cluster: Cluster, now_s: float) -> None:
        """Add a point for each machine type."""
        self.revision += 1
        for key, points in list(self._kept.items()):
            points.drop_before(now_s - KEPT_S)
            if not points.numbers:
                del self._kept[key]
        for key, sums in cluster.sums.items():
            if key not in self._kept:
                if len(self._kept) >= MAX_MACHINES:
                    continue
                self._kept[key] = _Points()
            efficiency = math.nan if sums.efficiency is None else sums.efficiency
            point = (now_s, sums.n_free, sums.n_stranded, *sums.placeable, efficiency)
            self._kept[key].numbers.extend(point)

    def chunks(self, since_s: float = 0.0) -> Iterator[bytes]:
        """The history from a time on, as JSON, in parts."""
        body: HistoryBody = {
            "began_unix_s": round(self._began_s, 3),
            "interval_s": INTERVAL_S,
            "lost_at_restart": True,
            "machines": [],
        }
        return spliced(_encode(body), "machines", self._machines(since_s))

    def _machines(self, since_s: float) -> Iterator[bytes]:
        for i, (key, points) in enumerate(tuple(self._kept.items())):
            body: MachineHistory = {
                "machine": key.machine,
                "topology": key.topology,
                "resource": key.resource,
                "points": [],
            }
            yield b"," if i else b""
            yield from spliced(_encode_machine(body), "points", joined(points.chunks(since_s)))


def _point(numbers: array[float]) -> Point:
    at_s, free, stranded, *placeable, efficiency = numbers
    of_2, of_4, of_8 = map(round, placeable)
    shown = None if math.isnan(efficiency) else efficiency
    if shown is not None and shown.is_integer():
        shown = round(shown)
    return round(at_s), round(free), round(stranded), of_2, of_4, of_8, shown
