"""What Coterie would gain on one machine, beside a plain kubelet and NVIDIA's best-effort.

What it answers: for sets of 2, 4 and 8 GPUs the mean GB/s of three choices from the same free GPUs,
as values (`GainReport`) and laid out as text. It reads no file and prints nothing.

Method: each set of free GPUs is one question, as if each were equally likely. Up to `MAX_FREE_SETS`
are asked, beyond so many that are evenly spaced among all of them in the order of their masks. A
plain kubelet takes any set of the free GPUs, so its figure is the mean over all of them; NVIDIA's
is the mean over the kubelet's orders (`topology.audit.figures`); Coterie's is what a pod without
annotations gets. Free GPUs in which Coterie finds no set, since they are of several models, are no
question. A mean says nothing of what a choice leaves to later pods, for which Coterie also looks.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from statistics import fmean
from typing import TYPE_CHECKING

from topology.audit.figures import MachineFigures
from topology.errors import InvalidRequest
from topology.model import REFERENCE_MESSAGE_BYTES, LinkKind, find_gpu_model
from topology.report.blocks import Grid, NoteLine
from topology.report.machine import machine_report
from topology.report.values import (
    SCHEMA_VERSION,
    MachineReport,
)
from topology.report.wording import machine_name, unknowns
from topology.select import MachineTables, Selected, select_set
from topology.value import MAX_TABLE_GPUS, is_known_set, mask_index

if TYPE_CHECKING:
    from topology.model import NodeTopology
    from topology.report.blocks import Block

__all__ = ["GainReport", "SizeGain", "list_gain", "report_gain"]

SIZES = (2, 4, 8)
MAX_FREE_SETS = 256
"""Most sets of free GPUs that are asked for one size; all 247 of 8 GPUs are."""


@dataclass(frozen=True, slots=True)
class SizeGain:
    """What three choices of one size are worth in the mean."""

    size_gpus: int
    """Number of GPUs in each set."""
    random_gbytes_per_s: float
    """Mean of a set chosen at random, as by a plain kubelet, GB/s."""
    best_effort_gbytes_per_s: float | None
    """Mean of NVIDIA's best-effort allocation, GB/s; null for GPUs of another vendor."""
    coterie_gbytes_per_s: float
    """Mean of Coterie's choice for a pod without annotations, GB/s."""


@dataclass(frozen=True, slots=True)
class GainReport:
    """`gain --json`: what Coterie would gain on a machine."""

    schema_version: int
    """1."""
    machine: MachineReport
    """Which machine."""
    message_bytes: int
    """Message size that the figures hold for, bytes."""
    is_even: bool
    """Whether all sets of each size are worth the same, so that no choice is faster."""
    is_known: bool
    """Whether the figures rest on nothing unknown."""
    n_pairs_unknown: int
    """Pairs of GPUs of which it is not known whether a link joins them: then figures mislead."""
    is_every_free_set: bool
    """Whether every set of free GPUs was asked of each size; false where they are too many."""
    sizes: tuple[SizeGain, ...]
    """By size; those of 2, 4 and 8 for which the machine has GPUs of one model."""


def report_gain(topology: NodeTopology) -> GainReport:
    """Report what Coterie would gain.

    Raises `InvalidRequest` above 16 GPUs, where sets are too many, unless all are worth the same.
    """
    figures = MachineFigures(topology)
    if not figures.is_judged:
        msg = (
            f"the node has {topology.n_gpus} GPUs, expected at most {MAX_TABLE_GPUS} "
            "to compare every set"
        )
        raise InvalidRequest(msg)
    sizes = [size for size in SIZES if size <= topology.n_gpus]
    is_nvidia = _is_nvidia(topology)
    gains = [_size_gain(figures, size, is_nvidia=is_nvidia) for size in sizes]
    return GainReport(
        schema_version=SCHEMA_VERSION,
        machine=machine_report(topology),
        message_bytes=REFERENCE_MESSAGE_BYTES,
        is_even=figures.is_even,
        is_known=_is_known(figures),
        n_pairs_unknown=sum(
            not topology.links[i][j].is_known for i, j in combinations(range(topology.n_gpus), 2)
        ),
        is_every_free_set=figures.is_even or 2**topology.n_gpus <= MAX_FREE_SETS,
        sizes=tuple(one for one in gains if one is not None),
    )


def _is_known(figures: MachineFigures) -> bool:
    machine = figures.machine
    if isinstance(machine, MachineTables):
        return bool(machine.is_known.all())
    everything = machine.all_gpus
    return is_known_set(machine.topology, everything, figures.limit(everything))


def _is_nvidia(topology: NodeTopology) -> bool:
    kinds = {link.kind for row in topology.links for link in row}
    kinds |= {model.link_kind for gpu in topology.gpus if (model := find_gpu_model(gpu.model))}
    return kinds.isdisjoint({LinkKind.XGMI, LinkKind.METAXLINK})


def _size_gain(figures: MachineFigures, size: int, *, is_nvidia: bool) -> SizeGain | None:
    machine = figures.machine
    if figures.is_even or not isinstance(machine, MachineTables):
        worth = round(figures.worth((1 << size) - 1).gbytes_per_s, 3)
        return SizeGain(size, worth, worth if is_nvidia else None, worth)
    index = mask_index(machine.n_gpus)
    sets = index.by_size[size]
    free_sets = index.masks[index.size >= size].tolist()
    n_asked = min(len(free_sets), MAX_FREE_SETS)
    random: list[float] = []
    best_effort: list[float] = []
    coterie: list[float] = []
    for place in range(n_asked):
        free = free_sets[place * len(free_sets) // n_asked]
        chosen = select_set(machine, available=free, size=size)
        if not isinstance(chosen, Selected):
            continue
        random.append(float(machine.value[sets[sets & ~free == 0]].mean()))
        coterie.append(chosen.value_gbytes_per_s)
        if is_nvidia and (other := figures.best_effort(free, size)) is not None:
            best_effort.append(other.gbytes_per_s)
    if not coterie:
        return None
    return SizeGain(
        size_gpus=size,
        random_gbytes_per_s=round(fmean(random), 3),
        best_effort_gbytes_per_s=round(fmean(best_effort), 3) if best_effort else None,
        coterie_gbytes_per_s=round(fmean(coterie), 3),
    )


def list_gain(report: GainReport) -> list[Block]:
    """List the means and what Coterie gains, or that there is nothing to gain."""
    blocks: list[Block] = [NoteLine(machine_name(report.machine), is_heading=True)]
    if report.machine.n_gpus == 1:
        return [*blocks, NoteLine("nothing to gain: one GPU has nothing to reduce")]
    if not report.sizes:
        return [*blocks, NoteLine("nothing to compare: no two GPUs are of one model")]
    if report.n_pairs_unknown:
        return [
            *blocks,
            NoteLine("not known: the input does not say which GPUs accelerator links join"),
            NoteLine(
                "name the GPUs with --gpu-model, or give all that `nvidia-smi topo -m` prints,"
            ),
            NoteLine("its legend too, or `rocm-smi --showtopo` for AMD"),
        ]
    if not report.is_known:
        blocks.append(NoteLine(f"rough, since facts are unknown: {unknowns(report.machine)}"))
    elif report.is_even:
        blocks += [
            NoteLine("nothing to gain in GB/s: all sets of a size are worth the same"),
            NoteLine("(Coterie packs pods there, so that larger ones fit)"),
        ]
    asked = "all" if report.is_every_free_set else f"at most {MAX_FREE_SETS} evenly spaced"
    has_nvidia = any(one.best_effort_gbytes_per_s is not None for one in report.sizes)
    who = "random: as a plain kubelet chooses"
    return [
        *blocks,
        NoteLine(f"predicted GB/s, mean over {asked} sets of free GPUs"),
        NoteLine(f"{who}; NVIDIA: its plugin's best-effort" if has_nvidia else who),
        _grid(report),
    ]


def _grid(report: GainReport) -> Grid:
    def gain(own: float, other: float) -> str:
        return "?" if report.machine.n_models_unknown else _gain(own, other)

    rows = tuple(
        (
            str(one.size_gpus),
            f"{one.random_gbytes_per_s:.1f}",
            "-" if (nvidia := one.best_effort_gbytes_per_s) is None else f"{nvidia:.1f}",
            f"{one.coterie_gbytes_per_s:.1f}",
            gain(one.coterie_gbytes_per_s, one.random_gbytes_per_s),
            "-" if nvidia is None else gain(one.coterie_gbytes_per_s, nvidia),
        )
        for one in report.sizes
    )
    columns = ("GPUs", "random", "NVIDIA", "Coterie", "over random", "over NVIDIA")
    return Grid(columns, rows, frozenset(range(len(columns))))


def _gain(own: float, other: float) -> str:
    percent = round(100 * (own / other - 1))
    return f"{percent:+d} %" if percent else "nothing"
