"""Reports laid out for people: notes and tables of text.

What it answers: which lines and tables a person sees for a report of `topology.report.values`. It
computes nothing and knows no terminal: `topology.cli.commands` prints the blocks. All foreign text
passes `topology.printable`; what is unknown is "?", what is absent is "-".
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from topology.model import PcieLevel, nearest_gpus
from topology.printable import printable
from topology.report.blocks import Grid, NoteLine
from topology.report.wording import LIMITS, gibibytes, machine_name, unknowns, with_all_links

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from topology.report.blocks import Block
    from topology.report.values import (
        BestReport,
        MachineReport,
        NicReport,
        PairReport,
        RankedReport,
        RankReport,
        RecordingsReport,
        SelectedReport,
        ShowReport,
        ValueReport,
    )

__all__ = [
    "list_best",
    "list_rank",
    "list_recordings",
    "list_show",
    "list_value",
]


MOST_NAMED_SETS = 3
"""Sets of a group of equal ones that are named."""

_LINK_PREFIX = {"nvlink": "NV", "xgmi": "XG", "c2c": "C2C-", "metaxlink": "MX"}
_LEGEND = {
    "X": "the GPU itself",
    "NV#": "# NVLinks between the two GPUs, direct or through a switch fabric",
    "XG#": "# XGMI links between the two GPUs",
    "C2C-#": "# C2C links between the two GPUs",
    "MX#": "# MetaXLinks between the two GPUs, direct or through a switch fabric",
    "-": "no accelerator link",
    "PIX": "at most one PCIe switch between the two",
    "PXB": "several PCIe switches, no CPU between the two",
    "PHB": "a CPU's PCIe host bridge between the two",
    "NODE": "several PCIe host bridges of one NUMA node between the two",
    "SYS": "the link between CPU sockets (NUMA nodes) between the two",
    "?": "unknown",
}
"""What the labels mean, as `nvidia-smi topo -m` explains its own."""
_CRITERIA = {
    "affinity": "the affinity, which the runner-up misses",
    "nic": "an RDMA NIC within PXB, which the runner-up lacks",
    "value_class": "class {:.0f} against {:.0f}",
    "class_sum": "class sum {:.1f} against {:.1f}, as in `rank`",
    "closeness": "GPUs closer to each other on PCIe",
    "remainder": "future placement cost {:.2f} against {:.2f} GPU-equivalents",
    "raw_sum": "measured figures that sum up to {:.1f} against {:.1f} GB/s",
    "value": "{:.1f} against {:.1f} GB/s",
    "packing": "groups of GPUs that are filled first, such as parts of one GPU; equal in all else",
    "indices": "lowest indices; equal in all else",
}


def list_show(report: ShowReport) -> list[Block]:
    """List a machine: its parts, what is unknown, what the labels mean, where it comes from."""
    models = Counter(gpu.model or "unknown model" for gpu in report.gpus)
    inventory = ", ".join(f"{count} x {printable(model)}" for model, count in models.items())
    facts = [
        ("GPUs", inventory),
        ("NICs", _text(report.machine.n_nics)),
        ("P2P over PCIe", _text(None if report.p2p == "unknown" else report.p2p)),
        ("CPU", _text(None if report.cpu == "unknown" else report.cpu)),
    ]
    if report.measurement is not None:
        measured = report.measurement
        text = (
            f"{measured.n_pairs} pairs, {measured.n_sets} sets; message bytes "
            f"{_text(measured.message_bytes)}, NCCL {_text(measured.nccl_version)}, "
            f"date {_text(measured.date)}"
        )
        facts.append(("measured", text))
    blocks: list[Block] = [NoteLine(machine_name(report.machine), is_heading=True), _facts(facts)]
    blocks += [NoteLine("GPUs", is_heading=True), _gpu_grid(report)]
    if len(report.gpus) > 1:
        links = {pair.gpus: _link(pair) for pair in report.pairs}
        blocks += [NoteLine("Accelerator links", is_heading=True), _matrix(report, links, ())]
        levels = {pair.gpus: pair.pcie_level or "?" for pair in report.pairs}
        blocks += [NoteLine("PCIe levels", is_heading=True), _matrix(report, levels, report.nics)]
    if report.fabrics:
        blocks += [NoteLine("Switch fabrics", is_heading=True), _fabric_grid(report)]
    if report.nics:
        blocks += [NoteLine("NICs", is_heading=True), _nic_grid(report)]
    if report.links_down:
        blocks.append(NoteLine("Links down", is_heading=True))
        blocks.extend(map(NoteLine, report.links_down))
    blocks.append(NoteLine("Unknown", is_heading=True))
    blocks.extend(NoteLine(text) for text in report.unknown or ("nothing",))
    blocks += [NoteLine("Legend", is_heading=True), _legend(report)]
    origin = [("source", _text(report.source)), ("digest", report.machine.digest)]
    blocks += [NoteLine("Recording", is_heading=True), _facts(origin)]
    return blocks


def list_value(report: ValueReport) -> list[Block]:
    """List what one set is worth."""
    size = len(report.gpus)
    facts = [
        ("set", _gpus(report.gpus)),
        ("bandwidth", _predicted(report, report.machine)),
    ]
    if size > 1:
        facts += _value_facts(report)
    facts += [
        ("measured", _yes(is_true=report.is_measured)),
        ("rests on unknowns", _yes(is_true=not report.is_known)),
        ("affinity nvlink", _yes(is_true=report.has_nvlink)),
        ("affinity pcie-switch", _yes(is_true=report.has_switch)),
        ("affinity numa", _yes(is_true=report.has_numa)),
        (
            "RDMA NIC within PXB",
            "?" if report.machine.n_nics is None else _yes(is_true=report.has_nic),
        ),
    ]
    return [NoteLine(machine_name(report.machine), is_heading=True), _facts(facts)]


def _value_facts(report: ValueReport) -> list[tuple[str, str]]:
    """What there is to say of the bandwidth of two GPUs and more."""
    size = len(report.gpus)
    facts = [
        ("", f"all-reduce bus bandwidth at {gibibytes(report.message_bytes)} messages"),
        ("after the stated error", f"{report.floor_gbytes_per_s:.1f} GB/s"),
        ("limited by", LIMITS[report.limit]),
        ("class", f"{report.value_class} (0 is the best)"),
    ]
    if report.best_gpus is not None and report.best_value_gbytes_per_s is not None:
        best = _bandwidth(report.best_value_gbytes_per_s, size)
        whole = f"the best set of {size}{with_all_links(report.machine)}"
        facts += [
            ("loss", f"{100 * report.loss:.1f} % against {whole}"),
            (f"best set of {size}", f"{_gpus(report.best_gpus)} with {best}"),
        ]
    if report.machine.has_links_down:
        facts.append(("with all links up", _bandwidth(report.whole_value_gbytes_per_s, size)))
    return facts


def list_best(report: BestReport) -> list[Block]:
    """List the chosen set, or why there is none."""
    heading = NoteLine(machine_name(report.machine), is_heading=True)
    if report.selected is None:
        reason = report.unfit
        text = "no set fits" if reason is None else f"{reason.reason} ({reason.detail})"
        return [heading, NoteLine(text)]
    selected, size = report.selected, report.request.size_gpus
    whole = f"the best set on the empty machine{with_all_links(report.machine)}"
    facts = [
        ("best set", _gpus(selected.gpus)),
        ("bandwidth", _predicted(selected, report.machine)),
        ("limited by", LIMITS[selected.limit]),
        ("class", f"{selected.value_class} (0 is the best)"),
        ("loss", f"{100 * selected.loss:.1f} % against {whole}"),
        ("future placement cost", f"{selected.remainder_cost_gpus:.2f} GPU-equivalents"),
    ]
    if report.request.affinity not in {"any", "none"}:
        holds = _yes(is_true=selected.satisfies_affinity)
        facts.append((f"affinity {report.request.affinity}", holds))
    if (other := report.runner_up) is not None:
        worth = f" with {other.value_gbytes_per_s:.1f} GB/s" if size > 1 else ""
        facts += [
            ("runner-up", f"{_gpus(other.gpus)}{worth}"),
            ("decided by", _CRITERIA[other.decided_by].format(*other.figures or ())),
        ]
    elif not report.is_every_set_compared:
        facts.append(("runner-up", "none: no other set that fits was compared"))
    if not report.is_every_set_compared:
        facts.append(("compared", "not every set, since the machine has more than 16 GPUs"))
    return [heading, _facts(facts)]


def list_rank(report: RankReport, *, n_rows: int, is_every_set: bool) -> list[Block]:
    """List the best `n_rows` groups of equal sets, or that many sets, each on its own row."""
    is_measured = any(entry.raw_sum for entry in report.sets)
    groups: dict[int, list[RankedReport]] = {}
    for entry in report.sets:
        groups.setdefault(entry.rank if is_every_set else entry.group, []).append(entry)
    rows = [
        (
            str(group[0].rank),
            str(len(group)),
            _some_sets([entry.gpus for entry in group]),
            f"{group[0].value_gbytes_per_s:.1f}",
            str(group[0].value_class),
            LIMITS[group[0].limit],
            f"{group[0].class_sum:.1f}",
            f"{group[0].raw_sum:.1f}",
        )
        for group in list(groups.values())[:n_rows]
    ]
    columns = ("rank", "sets", "GPUs", "GB/s", "class", "limited by", "class sum", "raw sum")
    hidden = {
        name for name, is_one in (("sets", is_every_set), ("raw sum", not is_measured)) if is_one
    }
    kept = [c for c, name in enumerate(columns) if name not in hidden]
    unit = "sets" if is_every_set else "groups of equal sets"
    listed = f"{report.n_sets} sets of {report.size_gpus}, best first; "
    if not is_every_set or len(rows) < len(groups):
        listed += f"{len(rows)} of {len(groups)} {unit}; "
    at = f"GB/s at {gibibytes(report.message_bytes)} messages"
    if not all(entry.is_known for entry in report.sets):
        at += f" ({unknowns(report.machine)})"
    return [
        NoteLine(machine_name(report.machine), is_heading=True),
        NoteLine(listed + at),
        Grid(
            tuple(columns[c] for c in kept),
            tuple(tuple(row[c] for c in kept) for row in rows),
            frozenset(k for k, c in enumerate(kept) if columns[c] not in {"GPUs", "limited by"}),
        ),
    ]


def list_recordings(report: RecordingsReport) -> list[Block]:
    """List the machines that ship with the project."""
    rows = tuple(
        (
            entry.name,
            str(entry.n_gpus),
            ", ".join(map(printable, entry.models)) or "?",
            _text(entry.n_nics),
        )
        for entry in report.recordings
    )
    return [Grid(("name", "GPUs", "model", "NICs"), rows, frozenset({1, 3}))]


# --- Parts ---------------------------------------------------------------------------------------


def _gpu_grid(report: ShowReport) -> Grid:
    """Tabulate the GPUs, without empty columns."""
    columns = ("GPU", "model", "MiB", "NUMA", "PCI bus id", "uuid", "parent")
    rows = [
        (
            str(gpu.index),
            _text(gpu.model),
            _text(gpu.memory_mib),
            _text(gpu.numa_node),
            _text(gpu.pci_bus_id),
            _text(gpu.uuid),
            _text(gpu.parent),
        )
        for gpu in report.gpus
    ]
    kept = [c for c in range(len(columns)) if c == 0 or any(row[c] != "?" for row in rows)]
    right = frozenset(kept.index(c) for c in (0, 2, 3) if c in kept)
    return Grid(
        tuple(columns[c] for c in kept), tuple(tuple(row[c] for c in kept) for row in rows), right
    )


def _matrix(
    report: ShowReport, cells: dict[tuple[int, int], str], nics: Sequence[NicReport]
) -> Grid:
    """Tabulate a fact about all pairs as nvidia-smi does, NICs as further columns."""
    n = len(report.gpus)
    columns = ("", *(f"GPU{j}" for j in range(n)), *(printable(nic.name) for nic in nics))
    rows = tuple(
        (
            f"GPU{i}",
            *("X" if i == j else cells[min(i, j), max(i, j)] for j in range(n)),
            *(nic.pcie_levels[i] or "?" for nic in nics),
        )
        for i in range(n)
    )
    return Grid(columns, rows)


def _link(pair: PairReport) -> str:
    if pair.link is None:
        return "?"
    if pair.link == "none":
        return "-"
    return _LINK_PREFIX[pair.link] + ("?" if pair.n_links is None else str(pair.n_links))


def _legend(report: ShowReport) -> Grid:
    """Explain the labels that the tables hold."""
    links = {re.sub(r"[0-9?]+$", "#", _link(pair)) for pair in report.pairs}
    levels = {pair.pcie_level or "?" for pair in report.pairs}
    levels.update(level or "?" for nic in report.nics for level in nic.pcie_levels)
    shown = links | levels | {"?"} | ({"X"} if report.pairs else set[str]())
    return _facts([(label, text) for label, text in _LEGEND.items() if label in shown])


def _some_sets(sets: Sequence[Sequence[int]]) -> str:
    more = " ..." if len(sets) > MOST_NAMED_SETS else ""
    return "  ".join(map(_gpus, sets[:MOST_NAMED_SETS])) + more


def _fabric_grid(report: ShowReport) -> Grid:
    rows = tuple(
        (
            fabric.kind,
            "up" if fabric.is_up else "down",
            _gpus(fabric.gpus),
            _gpus(fabric.n_links) if len(set(fabric.n_links)) > 1 else str(fabric.n_links[0]),
            "-" if fabric.clique is None else printable(fabric.clique),
        )
        for fabric in report.fabrics
    )
    return Grid(("kind", "state", "GPUs", "links each", "clique"), rows)


def _nic_grid(report: ShowReport) -> Grid:
    numa_nodes = [gpu.numa_node for gpu in report.gpus]
    rows = tuple(
        (
            printable(nic.name),
            "?" if nic.is_rdma is None else _yes(is_true=nic.is_rdma),
            "?" if nic.gbit_per_s is None else f"{nic.gbit_per_s:g}",
            _text(nic.numa_node),
            _text(nic.pci_bus_id),
            _nearest(nic, numa_nodes),
        )
        for nic in report.nics
    )
    columns = ("NIC", "RDMA", "Gbit/s", "NUMA", "PCI bus id", "nearest GPUs")
    return Grid(columns, rows, frozenset({2, 3}))


def _nearest(nic: NicReport, numa_nodes: Sequence[int | None]) -> str:
    levels = [PcieLevel(one or PcieLevel.UNKNOWN) for one in nic.pcie_levels]
    level, gpus = nearest_gpus(levels, nic.numa_node, numa_nodes)
    if level is not PcieLevel.UNKNOWN:
        return f"{_gpus(gpus)} ({level.value})"
    return f"{_gpus(gpus)} (by NUMA node)" if gpus else "?"


def _facts(facts: Sequence[tuple[str, str]]) -> Grid:
    return Grid(("", ""), tuple(facts))


def _gpus(gpus: Iterable[int]) -> str:
    return ",".join(map(str, gpus))


def _text(value: str | int | None) -> str:
    return "?" if value is None else printable(str(value))


def _yes(*, is_true: bool) -> str:
    return "yes" if is_true else "no"


def _bandwidth(value: float, size: int) -> str:
    return f"{value:.1f} GB/s" if size > 1 else "nothing to reduce with one GPU"


def _predicted(of: ValueReport | SelectedReport, machine: MachineReport) -> str:
    """A set's bandwidth, with what it rests on where that is unknown.

    Unknown links count as absent and unknown rates as the slowest, so a figure of links is the
    least; unknown access over PCIe counts as there, so a figure of PCIe may be either.
    """
    text = _bandwidth(of.value_gbytes_per_s, len(of.gpus))
    if of.is_known:
        return text
    word = "at least" if of.limit in {"switch", "ring", "relay"} else "about"
    return f"{word} {text} ({unknowns(machine)})"
