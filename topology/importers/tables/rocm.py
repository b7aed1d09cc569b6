"""rocm-smi and amd-smi topology tables -> `NodeTopology`.

What it answers: which AMD GPUs the output of `rocm-smi --showtopo` or `amd-smi topology` lists,
which pairs have an XGMI link, and at which NUMA node each GPU is. It never counts links (neither
tool prints a count; weight and NUMA bandwidth imply none), and it reads a matrix of link types
completely or not at all.

Method: the text is searched for rows that start with a GPU label (`GPU0`, a PCI address). A row
that holds only labels opens a table, or several side by side; whatever stands between rows (log
lines, error messages) is passed over. A table that holds link types is the matrix, whatever its
heading: some versions print link types under the heading of the weights. With `--json` rocm-smi
prints a key for each pair in place of a table, the lesser number first, and a card's NUMA node
under `cardN`.

- XGMI over one hop is a link of the pair. XGMI over several goes through other GPUs: no link of
  the pair's own. Some versions count one hop for them, but the driver gives XGMI a weight of 15 per
  hop (Linux amdkfd, kfd_crat.c: KFD_CRAT_XGMI_WEIGHT times the number of hops), so both
  tables are read. Where neither is printed, XGMI is taken for a link.
- PCIE is no accelerator link. amd-smi's table of access says whether such pairs reach each other's
  memory; where it says so of some only, that is unknown. Which PCIe level is not printed. GPUs at
  different NUMA nodes are SYS apart by that level's definition ("traversing ... the interconnect
  between NUMA nodes").
- "Numa Affinity" is sysfs' numa_node and goes before "Numa Node"; -1 is unknown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from topology.errors import ImportFormatError, InvalidTopology, quote
from topology.model import (
    MAX_GPUS,
    NO_LINK,
    AcceleratorLink,
    Gpu,
    LinkKind,
    NodeTopology,
    P2pAccess,
    PcieLevel,
    symmetric,
)

__all__ = ["import_rocm_smi"]

WHAT = "rocm-smi topology"

_GPU_LABEL = re.compile(r"GPU([0-9]{1,3})")
_ADDRESS_LABEL = re.compile(r"[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F]")
_LABEL = re.compile(rf"{_GPU_LABEL.pattern}|{_ADDRESS_LABEL.pattern}")
_NUMA = re.compile(
    r"GPU ?\[?(?P<gpu>[0-9]{1,3})\]?\s*:\s*\(Topology\)\s*"
    r"Numa (?P<what>Node|Affinity):\s*(?P<node>-?[0-9]{1,4})"
)
_NUMA_KEY = re.compile(r'"card(?P<gpu>[0-9]{1,3})":\s*\{(?P<facts>[^{}]*)\}')
_NUMA_FACT = re.compile(
    r'"\(Topology\) Numa (?P<what>Node|Affinity)":\s*"?(?P<node>-?[0-9]{1,4})"?'
)
_PAIR_KEY = re.compile(
    r'"\(Topology\) (?P<what>weight|hops|link type) between DRM devices '
    r'(?P<one>[0-9]{1,3}) and (?P<other>[0-9]{1,3})":\s*"?(?P<cell>[\w/]{1,20})"?',
    re.IGNORECASE,
)
_HEADING = re.compile(
    r"hops|weight|link type|access|numa bw|cache coher[ae]nc|atomics|dma|bi-directional",
    re.IGNORECASE,
)
_HOPS, _WEIGHT, _TYPES, _ACCESS = "hops", "weight", "link type", "access"
_XGMI_WEIGHT = 15
"""Weight of one XGMI hop (KFD_CRAT_XGMI_WEIGHT)."""
_OWN = frozenset({"0", "SELF", "X", "N/A", ""})
"""What the tools print on the diagonal; nothing for a pair's key."""

_ACCESS_WORDS = {"ENABLED": P2pAccess.YES, "DISABLED": P2pAccess.NO}
_LINK_TYPES = {"XGMI": AcceleratorLink(LinkKind.XGMI, None), "PCIE": NO_LINK}


@dataclass(slots=True)
class _Table:
    """One matrix as printed: its heading in lower case, column labels, and cells by row label."""

    heading: str
    columns: tuple[str, ...]
    rows: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    @property
    def is_of_link_types(self) -> bool:
        """Whether it holds link types, or says so and holds anything."""
        cells = {cell for row in self.rows.values() for cell in row}
        return not cells.isdisjoint(_LINK_TYPES) or (self.heading == _TYPES and bool(cells))

    def is_whole(self, labels: tuple[str, ...]) -> bool:
        """Whether it has these columns, and a row for each."""
        return self.columns == labels and len(self.rows) == len(labels)


def import_rocm_smi(text: str, *, gpu_model: str | None = None) -> NodeTopology:
    r"""Read the link tables of rocm-smi or amd-smi; `gpu_model` names the GPUs.

    Raises `ImportFormatError` where there is no link type matrix, or one with missing rows, missing
    cells or cells other than link types.

    >>> import_rocm_smi(" GPU0 GPU1 \n GPU0 0 XGMI \n GPU1 XGMI 0").links[0][1].kind
    <LinkKind.XGMI: 'xgmi'>
    """
    tables = _find_tables(text.splitlines()) or _tables_of_pairs(text)
    types = _link_types(tables, text)
    labels = types.columns
    n = len(labels)
    distances = [table for table in tables if _is_distance(table, labels)]
    numa_nodes = _numa_nodes(text, labels)
    try:
        return NodeTopology(
            gpus=tuple(
                Gpu(pci_bus_id=_address(label), model=gpu_model, numa_node=numa)
                for label, numa in zip(labels, numa_nodes, strict=True)
            ),
            links=tuple(tuple(_link(types, distances, i, j) for j in range(n)) for i in range(n)),
            pcie=symmetric(n, PcieLevel.SELF, lambda i, j: _level(numa_nodes[i], numa_nodes[j])),
            p2p=_p2p(types, tables),
        )
    except InvalidTopology as error:
        msg = f"{WHAT} contradicts itself: {error}"
        raise ImportFormatError(msg) from error


def _find_tables(lines: list[str]) -> list[_Table]:
    """All matrices, in the order printed, left to right where they stand side by side."""
    tables: list[_Table] = []
    current: list[_Table] = []
    width = 0
    headings: list[str] = []
    for line in lines:
        words = line.split()
        first = next((i for i, word in enumerate(words) if _LABEL.fullmatch(word)), None)
        if first is None:
            headings = [found.lower() for found in _HEADING.findall(line)] or headings
        elif all(_LABEL.fullmatch(word) for word in words[first:]):
            current = _open_tables(words[first:], headings)
            tables += current
            # Summed once per header, not per row: hostile text has many of both.
            width = sum(1 + len(table.columns) for table in current)
        elif len(words) - first == width:
            _add_row(words[first:], current)
    return tables


def _tables_of_pairs(text: str) -> list[_Table]:
    """The same from keys of pairs, of which each stands for both halves."""
    cells: dict[str, dict[tuple[int, int], str]] = {}
    for match in _PAIR_KEY.finditer(text):
        pair = int(match["one"]), int(match["other"])
        cells.setdefault(match["what"].lower(), {})[pair] = match["cell"]
    tables: list[_Table] = []
    for heading, by_pair in cells.items():
        gpus = sorted({gpu for pair in by_pair for gpu in pair})[: MAX_GPUS + 1]
        table = _Table(heading, tuple(f"GPU{gpu}" for gpu in gpus))
        for one in gpus:
            row = (by_pair.get((min(one, gpu), max(one, gpu)), "") for gpu in gpus)
            table.rows[f"GPU{one}"] = tuple(row)
        tables.append(table)
    return tables


def _open_tables(labels: list[str], headings: list[str]) -> list[_Table]:
    """Tables that a row of column labels opens; its first label again starts the next table."""
    starts = [i for i, label in enumerate(labels) if label == labels[0]]
    parts = [tuple(labels[a:b]) for a, b in zip(starts, [*starts[1:], None], strict=True)]
    named = headings if len(headings) == len(parts) else ["".join(headings[-1:])] * len(parts)
    return [_Table(heading, part) for heading, part in zip(named, parts, strict=True)]


def _add_row(words: list[str], tables: list[_Table]) -> None:
    """Give each table its part of a row that has exactly a label and the cells for each."""
    position = 0
    for table in tables:
        end = position + 1 + len(table.columns)
        label, *cells = words[position:end]
        position = end
        if label in table.columns:
            table.rows.setdefault(label, tuple(cells))


def _is_distance(table: _Table, labels: tuple[str, ...]) -> bool:
    is_of_distances = table.heading in {_HOPS, _WEIGHT} and not table.is_of_link_types
    return is_of_distances and table.is_whole(labels)


def _link_types(tables: list[_Table], text: str) -> _Table:
    """The first table of link types, checked to be complete."""
    table = next((table for table in tables if table.is_of_link_types), None)
    if table is None:
        msg = f"{WHAT} holds no matrix of link types, only {_what_else(tables, text)}"
        raise ImportFormatError(msg)
    columns = table.columns
    if len(columns) > MAX_GPUS or len(set(columns)) != len(columns):
        msg = f"{WHAT}: {len(columns)} columns, expected at most {MAX_GPUS} different GPUs"
        raise ImportFormatError(msg)
    missing = [label for label in columns if label not in table.rows]
    if missing:
        msg = f"{WHAT}: the link type matrix has no complete row for {missing[0]}"
        raise ImportFormatError(msg)
    for i, row in enumerate(columns):
        for j, column in enumerate(columns):
            _check_cell(table.rows[row][j], row, column, is_own=i == j)
    return table


def _check_cell(cell: str, row: str, column: str, *, is_own: bool) -> None:
    if cell not in (_OWN if is_own else _LINK_TYPES):
        expected = "0 or SELF" if is_own else "XGMI or PCIE"
        msg = f"{WHAT}: link type of {row} and {column} is {quote(cell)}, expected {expected}"
        raise ImportFormatError(msg)


def _what_else(tables: list[_Table], text: str) -> str:
    if tables:
        return f"{len(tables)} tables of other things"
    return (
        "NUMA nodes"
        if _NUMA.search(text) or _NUMA_KEY.search(text)
        else "text without a table of GPUs"
    )


def _link(types: _Table, distances: list[_Table], i: int, j: int) -> AcceleratorLink:
    row = types.columns[i]
    if i == j or any(_is_beyond_one_hop(table, table.rows[row][j]) for table in distances):
        return NO_LINK
    return _LINK_TYPES[types.rows[row][j]]


def _p2p(types: _Table, tables: list[_Table]) -> P2pAccess:
    """What the table of access says of all pairs without a link; UNKNOWN where they differ."""
    found = next((one for one in tables if one.heading == _ACCESS), None)
    if found is None or not found.is_whole(types.columns):
        return P2pAccess.UNKNOWN
    words = {
        word
        for row in found.rows
        for i, word in enumerate(found.rows[row])
        if types.rows[row][i] == "PCIE"
    }
    word = words.pop() if len(words) == 1 else ""
    return _ACCESS_WORDS.get(word, P2pAccess.UNKNOWN)


def _is_beyond_one_hop(table: _Table, cell: str) -> bool:
    one_hop = 1 if table.heading == _HOPS else _XGMI_WEIGHT
    return re.fullmatch(r"[0-9]{1,9}", cell) is not None and int(cell) > one_hop


def _numa_nodes(text: str, labels: tuple[str, ...]) -> list[int | None]:
    """NUMA node of each GPU; amd-smi prints none."""
    numa_nodes: dict[tuple[str, int], int] = {}
    for match in _NUMA.finditer(text):
        numa_nodes[match["what"], int(match["gpu"])] = int(match["node"])
    for card in _NUMA_KEY.finditer(text):
        for match in _NUMA_FACT.finditer(card["facts"]):
            numa_nodes[match["what"], int(card["gpu"])] = int(match["node"])
    nodes: list[int | None] = []
    for label in labels:
        gpu = _GPU_LABEL.fullmatch(label)
        index = int(gpu[1]) if gpu else -1
        node = numa_nodes.get(("Affinity", index), numa_nodes.get(("Node", index), -1))
        nodes.append(node if node >= 0 else None)
    return nodes


def _level(a: int | None, b: int | None) -> PcieLevel:
    is_apart = a is not None and b is not None and a != b
    return PcieLevel.SYS if is_apart else PcieLevel.UNKNOWN


def _address(label: str) -> str | None:
    return label.lower() if _ADDRESS_LABEL.fullmatch(label) else None
