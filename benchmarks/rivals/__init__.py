"""What others do: every policy that Coterie is compared with, behind one interface.

`benchmarks.rivals.base.Rival` is the interface; `SET_RIVALS` makes a fresh one of each.
"""

from __future__ import annotations

from benchmarks.rivals.base import NodeChooser, Rival
from benchmarks.rivals.bounds import LabelCeiling, MeasuredOracle
from benchmarks.rivals.ids import LowestIds, PlainKubelet
from benchmarks.rivals.links import BottleneckRing, CliqueSum
from benchmarks.rivals.mapa import MapaEffective, MapaGreedy, MapaPreserve
from benchmarks.rivals.nvidia import NvidiaBestEffort

__all__ = [
    "SET_RIVALS",
    "BottleneckRing",
    "CliqueSum",
    "LabelCeiling",
    "LowestIds",
    "MapaEffective",
    "MapaGreedy",
    "MapaPreserve",
    "MeasuredOracle",
    "NodeChooser",
    "NvidiaBestEffort",
    "PlainKubelet",
    "Rival",
]

SET_RIVALS: tuple[type[Rival], ...] = (
    PlainKubelet,
    LowestIds,
    NvidiaBestEffort,
    CliqueSum,
    MapaGreedy,
    MapaPreserve,
    BottleneckRing,
)
"""The rivals that choose a set on one node from its labels, in the order of the tables."""
