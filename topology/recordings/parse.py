"""Reads a recording, the project's own format for a machine (TOML, docs/recordings.md).

What it answers: which `NodeTopology` a text written by hand describes. Unknown keys, a pair given
twice and a level or count outside its set are refused (`ImportFormatError` with place, value and
expectation): a typing error in a recording would else become a wrong machine.

    name, title, source     texts; source is a list, one entry a place where the facts come from
    count                   number of GPUs
    model, memory_mib, link_generation, cpu, p2p
    numa                    one number for each GPU
    [links]                 kind, pairs = ["0-3:2"], groups = ["0-1-2-3:1"] (every pair in it),
                            rest = "none" or "unknown"; without a count it is unknown
    [[fabrics]]             kind, ports = 18 or one number a member, gpus (default: all), up, clique
    [pcie]                  PIX, PXB, PHB, NODE, SYS, unknown = [[0, 1], [2, 3]] (every pair in a
                            group), rest; of several groups the nearest level counts
    [[nics]]                name, rdma, numa, gbit_per_s, and PIX .. SYS, unknown = [0, 1] (GPUs),
                            rest
    [measured]              pairs = ["0-1:42.2"], sets = ["0-1-2:42.5"], message_bytes,
                            nccl_version, date, source

An absent `[links]` or `[pcie]` is unknown for all pairs that no fabric joins.
"""

from __future__ import annotations

import re
import tomllib
from itertools import combinations

from topology.errors import ImportFormatError, InvalidTopology, quote
from topology.model import (
    MAX_GPUS,
    MAX_LINKS,
    NO_LINK,
    UNKNOWN_LINK,
    AcceleratorLink,
    CpuPlatform,
    Field,
    Gpu,
    LinkKind,
    Nic,
    NodeTopology,
    P2pAccess,
    PcieLevel,
    SwitchFabric,
    symmetric,
)
from topology.model.node_topology import MeasuredPair, MeasuredSet, Measurement

__all__ = ["parse_recording"]

MAX_TEXT_CHARACTERS = 256 * 1024
"""Longest recording, in characters: a hundred times the longest that ships with the project."""

Pair = tuple[int, int]

_GROUP = re.compile(r"([0-9]{1,3}(?:-[0-9]{1,3})+)(?::([0-9]{1,9}(?:\.[0-9]{1,9})?))?")
_LEVELS = {
    "PIX": PcieLevel.PIX,
    "PXB": PcieLevel.PXB,
    "PHB": PcieLevel.PHB,
    "NODE": PcieLevel.NODE,
    "SYS": PcieLevel.SYS,
    "unknown": PcieLevel.UNKNOWN,
}
"""Words for a PCIe level, in the order in which groups count."""
_KEYS = (
    *("name", "title", "source", "count", "model", "memory_mib", "link_generation", "numa"),
    *("cpu", "p2p", "links", "fabrics", "pcie", "nics", "measured"),
)


def parse_recording(text: str) -> NodeTopology:
    """Read one machine; its sources are joined with "; ".

    Raises `ImportFormatError`, and nothing else, for a text that is no recording.

    >>> pair = parse_recording('''
    ... name = "pair"
    ... title = "two bridged GPUs"
    ... source = ["this example"]
    ... count = 2
    ... [links]
    ... kind = "nvlink"
    ... pairs = ["0-1:4"]
    ... rest = "none"
    ... ''')
    >>> pair.links[0][1].n_links, pair.pcie[0][1].value
    (4, '?')
    """
    try:
        return _read(Field(_parse(text), "", ImportFormatError))
    except (ImportFormatError, InvalidTopology) as error:
        msg = f"recording: {error}"
        raise ImportFormatError(msg) from error


def _parse(text: str) -> dict[str, object]:
    if len(text) > MAX_TEXT_CHARACTERS:
        msg = f"{len(text)} characters, expected at most {MAX_TEXT_CHARACTERS}"
        raise ImportFormatError(msg)
    try:
        return tomllib.loads(text)
    # A number of thousands of digits is a plain ValueError of int().
    except (ValueError, RecursionError) as error:
        msg = f"{quote(text)} is no TOML ({quote(str(error))})"
        raise ImportFormatError(msg) from error


def _read(root: Field) -> NodeTopology:
    root.only(*_KEYS)
    n = root.need("count").integer()
    if not 1 <= n <= MAX_GPUS:
        root.need("count").fail(f"1..{MAX_GPUS}")
    _filled(root.need("title"))
    sources = [_filled(entry) for entry in root.need("source").items()]
    if not sources:
        root.need("source").fail("at least one source")
    cpu, p2p, measured = root.get("cpu"), root.get("p2p"), root.get("measured")
    fabrics = tuple(_read_fabric(fabric, n) for fabric in root.items_at("fabrics"))
    return NodeTopology(
        gpus=_read_gpus(root, n),
        links=_read_links(root.get("links"), fabrics, n),
        pcie=_read_pcie(root.get("pcie"), n),
        nics=tuple(_read_nic(nic, n) for nic in root.items_at("nics")),
        fabrics=fabrics,
        p2p=P2pAccess.UNKNOWN if p2p is None else p2p.choice(P2pAccess),
        cpu=CpuPlatform.UNKNOWN if cpu is None else cpu.choice(CpuPlatform),
        measurement=None if measured is None else _read_measurement(measured, n),
        name=_filled(root.need("name")),
        source="; ".join(sources),
    )


def _filled(field: Field) -> str:
    text = field.text()
    if not text.strip():
        field.fail("a text that is not empty")
    return text


def _read_gpus(root: Field, n: int) -> tuple[Gpu, ...]:
    numa = root.get("numa")
    numa_nodes = [None] * n if numa is None else [node.integer() for node in numa.tuple_of(n)]
    return tuple(
        Gpu(
            model=root.text_or_none("model"),
            memory_mib=root.integer_or_none("memory_mib"),
            numa_node=numa_node,
            link_generation=root.integer_or_none("link_generation"),
        )
        for numa_node in numa_nodes
    )


# --- links ---


def _read_fabric(field: Field, n: int) -> SwitchFabric:
    field.only("kind", "ports", "gpus", "up", "clique")
    gpus, ports = field.get("gpus"), field.need("ports")
    members = list(range(n)) if gpus is None else _gpu_indices(gpus, n)
    if isinstance(ports.value, list):
        counts = [count.integer() for count in ports.tuple_of(len(members))]
    else:
        counts = [ports.integer()] * len(members)
    return SwitchFabric(
        ports=tuple(zip(members, counts, strict=True)),
        kind=field.need("kind").choice(LinkKind),
        is_up=field.flag_or_none("up") is not False,
        clique=field.text_or_none("clique"),
    )


def _read_links(
    field: Field | None, fabrics: tuple[SwitchFabric, ...], n: int
) -> tuple[tuple[AcceleratorLink, ...], ...]:
    links = {pair: link for fabric in fabrics for pair, link in fabric.pair_links()}
    rest = UNKNOWN_LINK
    if field is not None:
        field.only("kind", "pairs", "groups", "rest")
        rest = _rest_link(field.need("rest"))
        for entry in (*field.items_at("pairs"), *field.items_at("groups")):
            gpus, count = _read_group(entry, n)
            if count is not None and not (count.is_integer() and 1 <= count <= MAX_LINKS):
                entry.fail(f"a count of 1..{MAX_LINKS} links behind the colon")
            kind = field.need("kind").choice(LinkKind)
            link = AcceleratorLink(kind, None if count is None else int(count))
            for pair in combinations(gpus, 2):
                if pair in links:
                    entry.fail(f"each pair once; GPUs {pair[0]} and {pair[1]} are joined already")
                links[pair] = link
    return symmetric(n, NO_LINK, lambda i, j: links.get((j, i), rest))


def _rest_link(field: Field) -> AcceleratorLink:
    words = {"none": NO_LINK, "unknown": UNKNOWN_LINK}
    word = field.text()
    if word not in words:
        field.fail("one of: none, unknown")
    return words[word]


def _read_group(field: Field, n: int) -> tuple[tuple[int, ...], float | None]:
    match = _GROUP.fullmatch(field.text())
    if match is None:
        field.fail('GPUs and a number, such as "0-3:2" or "0-1-2-3:1"')
    gpus = [int(gpu) for gpu in match[1].split("-")]
    if gpus != sorted(set(gpus)) or gpus[-1] >= n:
        field.fail(f"different GPUs of 0..{n - 1}, ascending")
    return tuple(gpus), None if match[2] is None else float(match[2])


# --- PCIe levels ---


def _gpu_indices(field: Field, n: int) -> list[int]:
    gpus = [gpu.integer() for gpu in field.items()]
    if gpus != sorted(set(gpus)) or not gpus or not 0 <= gpus[0] <= gpus[-1] < n:
        field.fail(f"different GPUs of 0..{n - 1}, ascending")
    return gpus


def _read_level(field: Field) -> PcieLevel:
    word = field.text()
    if word not in _LEVELS:
        field.fail(f"one of: {', '.join(_LEVELS)}")
    return _LEVELS[word]


def _read_pcie(field: Field | None, n: int) -> tuple[tuple[PcieLevel, ...], ...]:
    levels: dict[Pair, PcieLevel] = {}
    rest = PcieLevel.UNKNOWN
    if field is not None:
        field.only(*_LEVELS, "rest")
        rest = _read_level(field.need("rest"))
        for word, level in _LEVELS.items():
            for group in field.items_at(word):
                for pair in combinations(_gpu_indices(group, n), 2):
                    levels.setdefault(pair, level)
    return symmetric(n, PcieLevel.SELF, lambda i, j: levels.get((j, i), rest))


def _read_nic(field: Field, n: int) -> Nic:
    field.only("name", "rdma", "numa", "gbit_per_s", *_LEVELS, "rest")
    rate = field.get("gbit_per_s")
    levels: dict[int, PcieLevel] = {}
    for word, level in _LEVELS.items():
        gpus = field.get(word)
        for gpu in () if gpus is None else _gpu_indices(gpus, n):
            levels.setdefault(gpu, level)
    rest = PcieLevel.UNKNOWN if len(levels) == n else _read_level(field.need("rest"))
    return Nic(
        name=_filled(field.need("name")),
        levels=tuple(levels.get(gpu, rest) for gpu in range(n)),
        numa_node=field.integer_or_none("numa"),
        is_rdma=field.flag_or_none("rdma"),
        gbit_per_s=None if rate is None else rate.number(),
    )


# --- measurement ---


def _read_measurement(field: Field, n: int) -> Measurement:
    field.only("pairs", "sets", "message_bytes", "nccl_version", "date", "source")
    pairs = [_read_measured(entry, n) for entry in field.items_at("pairs")]
    sets = [_read_measured(entry, n) for entry in field.items_at("sets")]
    return Measurement(
        pairs=tuple(MeasuredPair(gpus[0], gpus[1], bandwidth) for gpus, bandwidth in pairs),
        sets=tuple(MeasuredSet(gpus, bandwidth) for gpus, bandwidth in sets),
        message_bytes=field.integer_or_none("message_bytes"),
        nccl_version=field.text_or_none("nccl_version"),
        date=field.text_or_none("date"),
        source=field.text_or_none("source"),
    )


def _read_measured(field: Field, n: int) -> tuple[tuple[int, ...], float]:
    gpus, bandwidth = _read_group(field, n)
    if bandwidth is None:
        field.fail("GB/s behind the colon")
    return gpus, bandwidth
