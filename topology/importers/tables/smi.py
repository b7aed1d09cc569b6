"""Reads `nvidia-smi topo -m` (and `-mp`, and MetaX's `mx-smi topo -m`) of any vintage.

What it answers: the topology that such a matrix shows, wherever it stands: bare, in a log, a
mail, a job script, markdown or a string literal. It must never guess: no model that the text
(`nvidia-smi -L` lines) or the caller does not name, no NUMA node from a range, no locality from
the memory node (GPU NUMA ID), and no link or "no link" that the matrix does not show.

What is accepted: a complete GPU matrix. A GPU row that is missing or ends before its last GPU
column is refused by name, since half a matrix read as a whole would put pods on links that are not
there. NIC rows may be missing, as GPU rows hold the NIC columns; where a GPU row ends before
them, the NIC's own row counts, else that level is unknown. Levels on which the two rows disagree
are unknown, too.

Matrices of `topo -p2p` beside it say which GPUs reach each other's memory. That of pairs without a
link is access over PCIe; where it differs among them, or a command in the text asked for NVLink or
atomics, it stays unknown.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

from topology.errors import ImportFormatError
from topology.importers.tables.cells import UNKNOWN, Cell, parse_cell
from topology.importers.tables.label_matrix import build_matrices
from topology.importers.tables.smi_merge import merge_topologies
from topology.importers.tables.smi_table import SmiTable, find_tables
from topology.model import (
    NO_LINK,
    Gpu,
    Nic,
    NodeTopology,
    P2pAccess,
    PcieLevel,
    find_gpu_model,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

__all__ = ["import_smi"]

_LEGEND = re.compile(r"\bNV#\s*=")
_COMMAND = re.compile(r"\bnvidia-smi\s+topo\s+(?:-m|--matrix)(?![\w-])")
_NIC_NAME = re.compile(
    r"\b(NIC\d{1,4}):\s+([\w.:-]{1,48})(?=(?:\s*[(<][^)>]{0,48}[)>])?\W*(?:NIC\d{1,4}:|$))"
)
"""An entry of the legend; where other text stands behind the name, it was written over."""
_RDMA_NAME = re.compile(r"mlx\d+_|roce|ib[ops]\d|rdma[ops]|bnxt_re|irdma|hfi1_")
"""Names of RDMA devices: drivers/infiniband/hw in Linux, and rdma-core's persistent names."""
_LISTED_GPU = re.compile(r"\bGPU\s+(\d{1,3}):\s+(\S[^()\n]{0,79}?)\s*(?:\(UUID:\s*(\S{1,63})\)|$)")
_P2P_COMMAND = re.compile(r"\btopo\s+(?:-p2p|--p2p_status)\s+([rwnap])")
"""The capability that was asked for: read, write, NVLink, atomics, PCIe (`nvidia-smi topo -h`)."""
_P2P_WORDS = {"OK": P2pAccess.YES} | dict.fromkeys(("CNS", "GNS", "TNS", "DR"), P2pAccess.NO)
"""What a cell says of access: NS depends on the capability, which may be NVLink; U is unknown."""
_UUID = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_BRANDS = ("NVIDIA ", "Tesla ", "GeForce ", "Quadro ", "TITAN ", "GRID ", "GH200", "GB200")
_NUMA_NODE = re.compile(r"\d{1,3}")


def import_smi(text: str, *, gpu_model: str | None = None) -> NodeTopology:
    r"""Read the matrix of the text, or several of one machine.

    `gpu_model` names the GPUs that the text does not name. The GPUs are in column order. Raises
    `ImportFormatError` where there is no matrix, where none is complete, or where the text holds
    those of two machines; `InvalidTopology` where the facts contradict each other.

    >>> pair = "     GPU0 GPU1 NUMA Affinity\nGPU0  X   NV4  0\nGPU1 NV4   X   0-1"
    >>> import_smi(pair, gpu_model="NVIDIA RTX A6000").links[0][1]
    AcceleratorLink(kind=<LinkKind.NVLINK: 'nvlink'>, n_links=4)
    """
    tables = find_tables(text)
    if not tables:
        msg = "no nvidia-smi matrix: no header GPU0 GPU1 ... with a row of X, NV# or PIX..SYS below"
        raise ImportFormatError(msg)
    matrices = [table for table in tables if not table.is_p2p]
    if not matrices:
        msg = (
            "this is `nvidia-smi topo -p2p` output: it lists which GPUs may reach each other's "
            "memory, not how they are linked; run `nvidia-smi topo -m`"
        )
        raise ImportFormatError(msg)
    reasons = [_incomplete(table) for table in matrices]
    complete = [table for table, reason in zip(matrices, reasons, strict=True) if not reason]
    if not complete:
        raise ImportFormatError(reasons[0])
    listed = _listed_gpus(text)
    merged = merge_topologies([_read(table, listed, gpu_model) for table in complete])
    names = complete[0].header.gpus
    stated = [one for one in tables if one.is_p2p and one.header.gpus == names]
    whole = [one for one in stated if not _incomplete(one)]
    return replace(merged, p2p=_p2p(merged, whole, set(_P2P_COMMAND.findall(text))))


def _incomplete(table: SmiTable) -> str:
    """Why the GPU matrix is not complete; "" where it is."""
    names = (*table.header.gpus, *table.header.nics)
    n = len(table.header.gpus)
    if len(names) != len(table.header.names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        return f"column {twice} stands there twice, expected once"
    for name in table.header.gpus:
        row = table.rows.get(name)
        if row is None:
            return f"row {name} is missing: the matrix has {n} GPU columns"
        if len(row.labels) < n:
            return f"row {name} is cut off after {len(row.labels)} of {n} GPU columns"
    return ""


def _read(
    table: SmiTable, listed: Mapping[int, tuple[str, str | None]], gpu_model: str | None
) -> NodeTopology:
    gpus = _gpus(table, listed, gpu_model)
    names = table.header.gpus
    cells = [[_cell(table, name, i) for i in range(len(names))] for name in names]
    matrices = build_matrices(
        names,
        cells,
        models=[gpu.model for gpu in gpus],
        shows_links=any(_LEGEND.search(line) or _COMMAND.search(line) for line in table.lines),
    )
    return NodeTopology(
        gpus=gpus,
        links=matrices.links,
        pcie=matrices.pcie,
        nics=_nics(table),
        fabrics=matrices.fabrics,
    )


def _p2p(topology: NodeTopology, tables: Sequence[SmiTable], asked: AbstractSet[str]) -> P2pAccess:
    """What the matrices of access say alike of all pairs without a link."""
    if asked & {"n", "a"}:
        return P2pAccess.UNKNOWN
    words = _P2P_WORDS | ({"NS": P2pAccess.NO} if asked else {})
    unlinked = [
        (i, j)
        for i, j in combinations(range(topology.n_gpus), 2)
        if topology.links[i][j] == NO_LINK
    ]
    found: set[P2pAccess] = set()
    for table in tables:
        rows = [table.rows[name].labels for name in table.header.gpus]
        found |= {words.get(rows[i][j], P2pAccess.UNKNOWN) for i, j in unlinked}
    return found.pop() if len(found) == 1 else P2pAccess.UNKNOWN


def _cell(table: SmiTable, name: str, column: int) -> Cell:
    label = table.rows[name].labels[column]
    cell = parse_cell(label)
    if cell is None:
        msg = f"row {name}, column {table.header.gpus[column]} is {label!r}, expected a link label"
        raise ImportFormatError(msg)
    return cell


def _gpus(
    table: SmiTable, listed: Mapping[int, tuple[str, str | None]], gpu_model: str | None
) -> tuple[Gpu, ...]:
    gpus: list[Gpu] = []
    for name in table.header.gpus:
        model, uuid = listed.get(int(name.removeprefix("GPU")), (gpu_model, None))
        numa = table.rows[name].numa
        gpus.append(
            Gpu(
                uuid=uuid,
                model=model,
                numa_node=int(numa) if _NUMA_NODE.fullmatch(numa) else None,
            )
        )
    return tuple(gpus)


def _listed_gpus(text: str) -> dict[int, tuple[str, str | None]]:
    """Models and UUIDs from `nvidia-smi -L` lines, by GPU number; MIG lines are left out.

    Lines without a UUID (environment reports print them) count if they name a product.
    """
    listed: dict[int, tuple[str, str | None]] = {}
    for line in text.splitlines():
        match = _LISTED_GPU.search(line)
        if match is None:
            continue
        name, uuid = match[2], match[3]
        if uuid is None and find_gpu_model(name) is None and not name.startswith(_BRANDS):
            continue
        listed.setdefault(int(match[1]), (name, uuid if uuid and _UUID.fullmatch(uuid) else None))
    return listed


def _nics(table: SmiTable) -> tuple[Nic, ...]:
    legend = {found[1]: found[2] for line in table.lines for found in _NIC_NAME.finditer(line)}
    names = [legend.get(name, name) for name in table.header.nics]
    if len(set(names)) < len(names):
        names = list(table.header.nics)
    return tuple(
        Nic(
            name=name,
            levels=tuple(_nic_level(table, gpu, column) for gpu in range(len(table.header.gpus))),
            is_rdma=True if _RDMA_NAME.match(name) else None,
        )
        for column, name in enumerate(names)
    )


def _nic_level(table: SmiTable, gpu: int, nic: int) -> PcieLevel:
    n_gpus = len(table.header.gpus)
    row = table.rows[table.header.gpus[gpu]].labels
    own = table.rows.get(table.header.nics[nic])
    levels = {
        level
        for level in (
            _level(row, n_gpus + nic),
            _level(own.labels, gpu) if own is not None else PcieLevel.UNKNOWN,
        )
        if level is not PcieLevel.UNKNOWN
    }
    return levels.pop() if len(levels) == 1 else PcieLevel.UNKNOWN


def _level(labels: Sequence[str], column: int) -> PcieLevel:
    cell = parse_cell(labels[column]) if column < len(labels) else None
    return (cell or UNKNOWN).level
