"""The text of the node annotation `coterie.gpu/topology`.

What it answers: how a `NodeTopology` is written so that any Coterie program reads it back as the
very same value. It must never guess: text that is not a topology of major version 1 raises
`CodecError`, and nothing else does.

The text is compact JSON. Unknown keys are ignored (a later minor version may add some); a new
value of a closed set needs a new major version. An absent key is an unknown fact.

    v        major.minor
    name, source, p2p, cpu
    models   the GPU model names, each once
    gpus     [{uuid, pci, model: index into models, mem: MiB, numa, gen: link generation, parent}]
    links    row i (from 1) holds the links of GPU i to GPUs 0..i-1, split by blanks: n = NVLink,
             x = XGMI, c = C2C, m = MetaXLink with the count of up links (n4; bare if the count is
             unknown), - none, ? unknown; "n18*7" stands for seven times n18
    pcie     row i (from 1): one character for each GPU 0..i-1: 1 PIX, 2 PXB, 3 PHB, 4 NODE, 5 SYS,
             ? unknown
    nics     [{name, levels: one character for each GPU, pci, numa, rdma, gbit: rate of the link in
             Gbit/s}]
    fabrics  [{kind, ports: [[GPU, n_links]], up: false where it is down, clique}]
    measured {pairs: [[i, j, GB/s]], sets: [[[i, j, k], GB/s]], bytes, nccl, date, source}
"""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING

from topology.errors import CodecError
from topology.model import names
from topology.model.json_text import check_version, read_text, write_text
from topology.model.node_topology import (
    MAX_GPUS,
    NO_LINK,
    UNKNOWN_LINK,
    AcceleratorLink,
    CpuPlatform,
    Gpu,
    LinkKind,
    MeasuredPair,
    MeasuredSet,
    Measurement,
    Nic,
    NodeTopology,
    P2pAccess,
    PcieLevel,
    SwitchFabric,
    symmetric,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from topology.model.fields import Field

__all__ = ["decode_gpus", "decode_topology", "encode_topology", "levels_text", "links_text"]

_TITLE = "topology text"
_LINK_RUN = re.compile(r"(?:([nxcm])([1-9][0-9]?)?|([-?]))(?:\*([1-9][0-9]{0,2}))?")
_LINK_LETTERS = {
    LinkKind.NVLINK: "n",
    LinkKind.XGMI: "x",
    LinkKind.C2C: "c",
    LinkKind.METAXLINK: "m",
    LinkKind.NONE: "-",
    LinkKind.UNKNOWN: "?",
}
_LINK_KINDS = {letter: kind for kind, letter in _LINK_LETTERS.items()}
_LEVEL_LETTERS = {
    PcieLevel.PIX: "1",
    PcieLevel.PXB: "2",
    PcieLevel.PHB: "3",
    PcieLevel.NODE: "4",
    PcieLevel.SYS: "5",
    PcieLevel.UNKNOWN: "?",
}
_LEVELS = {letter: level for level, letter in _LEVEL_LETTERS.items()}


def encode_topology(topology: NodeTopology) -> str:
    """Write a topology as annotation text; equal values give equal text.

    `decode_topology` gives the same value back. Raises `CodecError` where the text would not fit
    into an annotation, which only hundreds of irregular devices can bring about.
    """
    models = list(dict.fromkeys(gpu.model for gpu in topology.gpus if gpu.model is not None))
    body: dict[str, object] = {"v": names.SCHEMA_VERSION}
    body |= _present({"name": topology.name, "source": topology.source})
    if topology.p2p is not P2pAccess.UNKNOWN:
        body["p2p"] = topology.p2p.value
    if topology.cpu is not CpuPlatform.UNKNOWN:
        body["cpu"] = topology.cpu.value
    if models:
        body["models"] = models
    body["gpus"] = [_gpu_body(gpu, models) for gpu in topology.gpus]
    body["links"] = [links_text(topology.links[i][:i]) for i in range(1, topology.n_gpus)]
    body["pcie"] = [levels_text(topology.pcie[i][:i]) for i in range(1, topology.n_gpus)]
    if topology.nics:
        body["nics"] = [_nic_body(nic) for nic in topology.nics]
    if topology.fabrics:
        body["fabrics"] = [_fabric_body(fabric) for fabric in topology.fabrics]
    if topology.measurement is not None:
        body["measured"] = _measurement_body(topology.measurement)
    return write_text(body, _TITLE)


def decode_topology(text: str) -> NodeTopology:
    """Read annotation text of major version 1 (any minor).

    Raises `CodecError`, and nothing else, for any other text: the message names the place, the
    value and what was expected. Time and memory are bounded by `topology.model.json_text`.

    >>> decode_topology('{"v":"2.0"}')
    Traceback (most recent call last):
    topology.errors.CodecError: topology text: v is '2.0', expected major version 1
    """
    return read_text(text, _TITLE, _read_topology)


def decode_gpus(text: str) -> tuple[Gpu, ...]:
    """Read the GPUs of annotation text alone, for a check before their pairs are read.

    O(text); what else the text holds may be anything. Raises `CodecError`, and nothing else.

    >>> decode_gpus('{"v":"1.0","gpus":[{"uuid":"GPU-1"}]}')[0].uuid
    'GPU-1'
    """
    return read_text(text, _TITLE, _read_gpus)


# --- writing ---


def _present(fields: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in fields.items() if value is not None}


def _gpu_body(gpu: Gpu, models: list[str]) -> dict[str, object]:
    return _present(
        {
            "uuid": gpu.uuid,
            "pci": gpu.pci_bus_id,
            "model": None if gpu.model is None else models.index(gpu.model),
            "mem": gpu.memory_mib,
            "numa": gpu.numa_node,
            "gen": gpu.link_generation,
            "parent": gpu.parent,
        }
    )


def _nic_body(nic: Nic) -> dict[str, object]:
    body: dict[str, object] = {"name": nic.name, "levels": levels_text(nic.levels)}
    rate = nic.gbit_per_s
    return body | _present(
        {
            "pci": nic.pci_bus_id,
            "numa": nic.numa_node,
            "rdma": nic.is_rdma,
            "gbit": int(rate) if rate is not None and rate == int(rate) else rate,
        }
    )


def _fabric_body(fabric: SwitchFabric) -> dict[str, object]:
    body: dict[str, object] = {"kind": fabric.kind.value, "ports": fabric.ports}
    return body | _present({"up": None if fabric.is_up else False, "clique": fabric.clique})


def _measurement_body(measured: Measurement) -> dict[str, object]:
    body: dict[str, object] = {}
    if measured.pairs:
        body["pairs"] = [
            [p.first, p.second, float(p.bandwidth_gbytes_per_s)] for p in measured.pairs
        ]
    if measured.sets:
        body["sets"] = [[s.gpus, float(s.bandwidth_gbytes_per_s)] for s in measured.sets]
    return body | _present(
        {
            "bytes": measured.message_bytes,
            "nccl": measured.nccl_version,
            "date": measured.date,
            "source": measured.source,
        }
    )


def _link_token(link: AcceleratorLink) -> str:
    return _LINK_LETTERS[link.kind] + (str(link.n_links) if link.n_links else "")


def links_text(row: Iterable[AcceleratorLink]) -> str:
    """Write links as the annotation does, split by blanks."""
    runs = ((token, len(list(run))) for token, run in groupby(map(_link_token, row)))
    return " ".join(token if length == 1 else f"{token}*{length}" for token, length in runs)


def levels_text(row: Iterable[PcieLevel]) -> str:
    """Write PCIe levels as the annotation does, one character each."""
    return "".join(_LEVEL_LETTERS[level] for level in row)


# --- reading ---


def _read_gpus(root: Field) -> tuple[Gpu, ...]:
    check_version(root.need("v"))
    models, gpus = root.items_at("models"), root.need("gpus").items()
    if not 1 <= len(gpus) <= MAX_GPUS:
        msg = f"gpus has {len(gpus)} members, expected 1..{MAX_GPUS}"
        raise CodecError(msg)
    return tuple(_read_gpu(gpu, models) for gpu in gpus)


def _read_topology(root: Field) -> NodeTopology:
    gpus = _read_gpus(root)
    n = len(gpus)
    p2p, cpu, measured = root.get("p2p"), root.get("cpu"), root.get("measured")
    link_rows = [_read_links(row, i + 1) for i, row in enumerate(_rows(root, "links", n))]
    pcie_rows = [_read_levels(row, i + 1) for i, row in enumerate(_rows(root, "pcie", n))]
    return NodeTopology(
        gpus=gpus,
        links=symmetric(n, NO_LINK, lambda i, j: link_rows[i - 1][j]),
        pcie=symmetric(n, PcieLevel.SELF, lambda i, j: pcie_rows[i - 1][j]),
        nics=tuple(_read_nic(nic, n) for nic in root.items_at("nics")),
        fabrics=tuple(_read_fabric(fabric) for fabric in root.items_at("fabrics")),
        p2p=P2pAccess.UNKNOWN if p2p is None else p2p.choice(P2pAccess),
        cpu=CpuPlatform.UNKNOWN if cpu is None else cpu.choice(CpuPlatform),
        measurement=None if measured is None else _read_measurement(measured),
        name=root.text_or_none("name"),
        source=root.text_or_none("source"),
    )


def _rows(root: Field, key: str, n_gpus: int) -> tuple[Field, ...]:
    return root.need(key).tuple_of(n_gpus - 1)


def _read_gpu(field: Field, models: tuple[Field, ...]) -> Gpu:
    model = field.integer_or_none("model")
    if model is not None and not 0 <= model < len(models):
        field.need("model").fail(f"an index below {len(models)}, the number of models")
    return Gpu(
        uuid=field.text_or_none("uuid"),
        pci_bus_id=field.text_or_none("pci"),
        model=None if model is None else models[model].text(),
        memory_mib=field.integer_or_none("mem"),
        numa_node=field.integer_or_none("numa"),
        link_generation=field.integer_or_none("gen"),
        parent=field.text_or_none("parent"),
    )


def _read_links(field: Field, length: int) -> tuple[AcceleratorLink, ...]:
    row: list[AcceleratorLink] = []
    for token in field.text().split(" "):
        match = _LINK_RUN.fullmatch(token)
        if match is None:
            field.fail("links such as n4, x, -, ? or n18*7, split by one blank")
        letter, count, other, run = match.groups()
        if other is None:
            link = AcceleratorLink(_LINK_KINDS[letter], None if count is None else int(count))
        else:
            link = NO_LINK if other == "-" else UNKNOWN_LINK
        row += [link] * int(run or "1")
        if len(row) > length:  # here, since a hostile text could request millions
            break
    if len(row) != length:
        field.fail(f"{length} links")
    return tuple(row)


def _read_levels(field: Field, length: int) -> tuple[PcieLevel, ...]:
    text = field.text()
    if len(text) != length or not set(text) <= set(_LEVELS):
        field.fail(f"{length} of the characters {''.join(_LEVELS)}")
    return tuple(_LEVELS[letter] for letter in text)


def _read_nic(field: Field, n_gpus: int) -> Nic:
    rate = field.get("gbit")
    return Nic(
        name=field.need("name").text(),
        levels=_read_levels(field.need("levels"), n_gpus),
        pci_bus_id=field.text_or_none("pci"),
        numa_node=field.integer_or_none("numa"),
        is_rdma=field.flag_or_none("rdma"),
        gbit_per_s=None if rate is None else rate.number(),
    )


def _read_fabric(field: Field) -> SwitchFabric:
    ports = [port.tuple_of(2) for port in field.need("ports").items()]
    return SwitchFabric(
        ports=tuple((gpu.integer(), n_links.integer()) for gpu, n_links in ports),
        kind=field.need("kind").choice(LinkKind),
        is_up=field.flag_or_none("up") is not False,
        clique=field.text_or_none("clique"),
    )


def _read_measurement(field: Field) -> Measurement:
    pairs = [pair.tuple_of(3) for pair in field.items_at("pairs")]
    sets = [entry.tuple_of(2) for entry in field.items_at("sets")]
    return Measurement(
        pairs=tuple(MeasuredPair(i.integer(), j.integer(), bw.number()) for i, j, bw in pairs),
        sets=tuple(
            MeasuredSet(tuple(gpu.integer() for gpu in gpus.items()), bw.number())
            for gpus, bw in sets
        ),
        message_bytes=field.integer_or_none("bytes"),
        nccl_version=field.text_or_none("nccl"),
        date=field.text_or_none("date"),
        source=field.text_or_none("source"),
    )
