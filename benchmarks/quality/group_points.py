"""Sets over nodes that others measured: the shapes of one cluster, and single published points.

The shapes are NCCL all-reduce bus bandwidths by number of GPUs on each node; the data is read from
`../shared` and not shipped. The points are single figures from issues, each with its source. It
values nothing.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from benchmarks.errors import BadData, MissingData
from topology.groups import GroupShare
from topology.model import Nic, PcieLevel
from topology.recordings import load_recording
from topology.select import build_machine

if TYPE_CHECKING:
    from pathlib import Path

    from topology.select import Machine

__all__ = ["GroupShape", "PublicPoint", "load_shapes", "public_points", "shape_shares"]

_SIZES = re.compile(r"[1-8](?:\+[1-8])*")
_SIZES_COLUMN, _BUSBW_COLUMN = 0, "busbw_2GiB_GBps"
_CLIQUE = "published"


@dataclass(frozen=True, slots=True)
class GroupShape:
    """GPUs on each node, most first, and what was measured at 2 GiB, GB/s."""

    sizes: tuple[int, ...]
    gbytes_per_s: float


@dataclass(frozen=True, slots=True)
class PublicPoint:
    """A published figure, GB/s at large messages, and the set that it was measured on."""

    label: str
    source: str
    gbytes_per_s: float
    shares: tuple[GroupShare, ...]


def load_shapes(shared: Path) -> tuple[GroupShape, ...]:
    """Load the shapes over two nodes and more, in the file's order.

    Raises `MissingData` where the file is not there, `BadData` where it holds something else.
    """
    path = shared / "measured" / "h100_multinode_shapes.csv"
    try:
        rows = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))
    except OSError as error:
        msg = f"measured shapes: {path} cannot be read; name the folder with --shared"
        raise MissingData(msg) from error
    if not rows or _BUSBW_COLUMN not in rows[0]:
        msg = f"{path}: expected CSV with a column {_BUSBW_COLUMN}"
        raise BadData(msg)
    column = rows[0].index(_BUSBW_COLUMN)
    shapes = [_shape(row, column, path) for row in rows[1:]]
    return tuple(shape for shape in shapes if len(shape.sizes) > 1)


def _shape(row: list[str], column: int, path: Path) -> GroupShape:
    try:
        sizes, figure = row[_SIZES_COLUMN], float(row[column])
    except (IndexError, ValueError) as error:
        msg = f"{path}: row {row}, expected a shape and GB/s"
        raise BadData(msg) from error
    if not _SIZES.fullmatch(sizes) or figure <= 0:
        msg = f"{path}: row {row}, expected a shape such as 4+2 and GB/s above 0"
        raise BadData(msg)
    return GroupShape(tuple(map(int, sizes.split("+"))), figure)


@cache
def _h100() -> Machine:
    """The cluster's node: 8 H100 with a NIC of 400 Gbit/s for each GPU."""
    return build_machine(load_recording("dgx-h100"))


def shape_shares(shape: GroupShape) -> tuple[GroupShare, ...]:
    """The set of a shape, of the lowest GPUs of each node: they are alike."""
    return tuple(GroupShare(_h100(), tuple(range(size))) for size in shape.sizes)


def _a100_with_four_nics() -> Machine:
    nics = tuple(
        Nic(
            name=f"mlx5_{i}",
            levels=tuple(PcieLevel.PXB if gpu // 2 == i else PcieLevel.SYS for gpu in range(8)),
            is_rdma=True,
            gbit_per_s=200.0,
        )
        for i in range(4)
    )
    return build_machine(replace(load_recording("dgx-a100"), nics=nics))


@cache
def public_points() -> tuple[PublicPoint, ...]:
    """The published points; none of them was used in the fit."""
    a100 = GroupShare(_a100_with_four_nics(), tuple(range(8)))
    h100, one = GroupShare(_h100(), tuple(range(8))), GroupShare(_h100(), (0,))
    tray = GroupShare(build_machine(load_recording("gb200-tray")), (0, 1, 2, 3), _CLIQUE)
    return (
        PublicPoint("2 x 8 A100, 4 x 200 Gbit/s", "nccl-tests issue 175", 86.0, (a100,) * 2),
        PublicPoint("3 x 8 A100, 4 x 200 Gbit/s", "nccl-tests issue 119", 96.0, (a100,) * 3),
        PublicPoint("2 x 8 H100, 8 x 400 Gbit/s", "nccl-tests issue 309", 470.0, (h100,) * 2),
        PublicPoint("4 x 8 H100, 8 x 400 Gbit/s", "nccl-tests issue 309", 366.0, (h100,) * 4),
        PublicPoint("2 x 1 H100, 400 Gbit/s near", "nccl-tests issue 232", 50.0, (one,) * 2),
        PublicPoint(
            "2 x 4 GB200 in one clique",
            "lixueduan.com/posts/ai/13-gb200-mnnvl-nccl-test",
            811.0,
            (tray,) * 2,
        ),
    )
