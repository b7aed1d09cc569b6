"""What the routes of changes and history respond, as `extender.read_api.bodies`."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import with_config
from typing_extensions import TypedDict  # typing's own lacks what pydantic needs before 3.12

__all__ = ["ChangeBody", "HistoryBody", "MachineHistory", "Point"]


class ChangeBody(TypedDict):
    """The data of an event: nodes and groups that changed, came or went, whether pending pods did.

    Groups by namespace and name, with a slash between.
    """

    generation: int
    nodes: list[str]
    groups: list[str]
    pending: bool


Point: TypeAlias = tuple[int, int, int, int, int, int, int | float | None]
"""Of a share that is whole there is no fraction."""


class MachineHistory(TypedDict):
    """A point: Unix seconds, free, stranded, placeable sets of 2, 4 and 8, efficiency or null."""

    machine: str
    topology: str | None
    resource: str
    points: list[Point]


@with_config(defer_build=True)
class HistoryBody(TypedDict):
    """Points of each machine type, as capacity lists them."""

    began_unix_s: float
    interval_s: int
    lost_at_restart: Literal[True]
    machines: list[MachineHistory]
