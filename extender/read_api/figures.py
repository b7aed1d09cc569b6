"""What sets of a machine type are worth, and what its free GPUs still hold.

Looks values up in the tables of a machine type; what costs more is remembered by machine type and
free mask, since nodes that are alike share it. Machine types above 16 GPUs whose links are not
equal have no tables, and packing finds no best set (`MachineType.is_rated_slowly`): their figures
are unknown. It chooses no set for a pod.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from extender.read_api.bodies import Figures, FreeSet, SizeKey
from topology.select import MachineTables, Selected, select_set
from topology.value import Limit, gpus_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    from extender.snapshot import MachineType

    BestSets: TypeAlias = dict[SizeKey, FreeSet]

__all__ = ["SIZES", "SIZE_KEYS", "UNKNOWN", "SetFigures", "by_size", "rounded", "set_figures"]

SIZE_KEYS: tuple[SizeKey, ...] = get_args(SizeKey)
SIZES = tuple(map(int, SIZE_KEYS))
"""Set sizes for which the best free set and the placeable sets are shown."""
MAX_KEPT = 16_384
"""Free masks whose best sets are remembered, some 1 KB each; beyond it all are forgotten."""


UNKNOWN: Figures = {"gbytes_per_s": None, "share": None, "limited_by": None}


class SetFigures:
    """The figures of all machine types."""

    def __init__(self) -> None:
        self._best: dict[tuple[MachineType, int], BestSets | None] = {}

    def worth(self, machine: MachineType | None, mask: int) -> Figures:
        """What a set is worth; `UNKNOWN` for one GPU, and where it is in no table."""
        if machine is None or machine.is_rated_slowly or mask.bit_count() < SIZES[0]:
            return UNKNOWN
        tables = machine.selector
        if isinstance(tables, MachineTables):
            limit = Limit(int(tables.limit[mask]))
            return _figures(float(tables.value[mask]), float(tables.loss[mask]), limit)
        selected = select_set(tables, available=mask, size=mask.bit_count())
        return set_figures(selected) if isinstance(selected, Selected) else UNKNOWN

    def best(self, machine: MachineType | None, free: int) -> BestSets | None:
        """The best free set of each of `SIZES` that has one; None where there is no table."""
        if machine is None:
            return {}
        key = machine, free
        if key not in self._best:
            if len(self._best) >= MAX_KEPT:
                self._best.clear()
            self._best[key] = None if machine.is_rated_slowly else self._find_best(machine, free)
        return self._best[key]

    def _find_best(self, machine: MachineType, free: int) -> BestSets:
        best: BestSets = {}
        for key, size in zip(SIZE_KEYS, SIZES, strict=True):
            if size > free.bit_count():
                break
            selected = select_set(machine.selector, available=free, size=size)
            if isinstance(selected, Selected):
                best[key] = {
                    "gpus": list(gpus_of(selected.mask)),
                    "gbytes_per_s": round(selected.value_gbytes_per_s, 3),
                    "share": round(1 - selected.loss, 4),
                }
        return best

    @staticmethod
    def placeable(machine: MachineType | None, free: int) -> tuple[int, ...]:
        """How many sets of each of `SIZES` can be placed side by side.

        Only sets within 10 % of the machine's best count (`topology.select.near_best_counts`), for
        sizes of the setting `demand`; other sizes, machine types above 16 GPUs and devices without
        a topology are counted by number.
        """
        counts = [free.bit_count() // size for size in SIZES]
        if machine is not None:
            for i, size in enumerate(SIZES):
                if size in machine.near_best:
                    counts[i] = int(machine.near_best[size][free])
        return tuple(counts)

    @staticmethod
    def stranded(placeable: tuple[int, ...], *, n_gpus: int, n_free: int) -> int:
        """Free GPUs of a node that can form no set of 4; none of 2 where it has fewer GPUs.

        `n_gpus` are all GPUs of the node, `placeable` those of its free ones.
        """
        fitting = [n for size, n in zip(SIZES, placeable, strict=True) if size <= min(n_gpus, 4)]
        return 0 if not fitting or fitting[-1] else n_free


def rounded(figure: float | None) -> float | None:
    """To thousandths, as figures are shown; None stays."""
    return None if figure is None else round(figure, 3)


def by_size(counts: Sequence[int]) -> dict[SizeKey, int]:
    """Counts by `SIZES`, as JSON has them."""
    return dict(zip(SIZE_KEYS, counts, strict=True))


def set_figures(selected: Selected) -> Figures:
    """What a selected set is worth; `UNKNOWN` for one GPU, which has nothing to reduce."""
    if len(selected.gpus) < SIZES[0]:
        return UNKNOWN
    return _figures(selected.value_gbytes_per_s, selected.loss, selected.limit)


def _figures(value_gbytes_per_s: float, loss: float, limit: Limit) -> Figures:
    return {
        "gbytes_per_s": round(value_gbytes_per_s, 3),
        "share": round(1 - loss, 4),
        "limited_by": limit.name.lower(),
    }
