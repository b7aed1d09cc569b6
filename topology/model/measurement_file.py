"""Measured bandwidths as people keep them: a JSON object or lines of figures.

What it answers: the `Measurement` that a text holds, and its text. It never joins it to a node (the
caller does, and the node then checks that it has those GPUs) and never judges the figures.

The format, also in docs/cli.md:

- JSON: `{"pairs": [[0, 1, 42.2], ...], "sets": [[[0, 1, 2], 42.7], ...]}` and, where known,
  `message_bytes`, `nccl_version`, `date`, `source`. An unknown key is refused: a misspelt one would
  be lost without a word.
- Lines: GPU indices, then GB/s, separated by commas or blanks: `0,1,42.2` is a pair, `0 1 2,42.7` a
  set. Blank lines and lines that start with `#` are skipped.

Figures are bus bandwidths of NCCL's all_reduce_perf in GB/s.
"""

from __future__ import annotations

import json
import re

from topology.errors import ImportFormatError, InvalidTopology, quote
from topology.model.fields import Field
from topology.model.node_topology import MeasuredPair, MeasuredSet, Measurement

__all__ = ["parse_measurement", "write_measurement"]

_SEPARATOR = re.compile(r"\s*[,;]\s*|\s+")
_INDEX = re.compile(r"[0-9]{1,4}")
_DECIMAL = re.compile(r"[0-9]{1,9}(\.[0-9]{1,17})?")


def parse_measurement(text: str) -> Measurement:
    """Read measured pairs and sets; the order of the GPUs within one does not matter.

    Raises `ImportFormatError`, and nothing else, with the place and the reason; also where the text
    holds no figure at all. Linear in the text's length, but for the search for a pair given twice.

    >>> parse_measurement("0,1,42.2").pairs
    (MeasuredPair(first=0, second=1, bandwidth_gbytes_per_s=42.2),)
    """
    body = text.lstrip("\ufeff \t\r\n")
    try:
        measurement = _read_json(body) if body.startswith("{") else _read_lines(body)
    except InvalidTopology as error:
        msg = f"measurement: {error}"
        raise ImportFormatError(msg) from error
    if not measurement.pairs and not measurement.sets:
        msg = (
            f"measurement starts with {quote(body[:40])}: no pair and no set, expected one at least"
        )
        raise ImportFormatError(msg)
    return measurement


def _read_json(text: str) -> Measurement:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"measurement: not JSON ({error})"
        raise ImportFormatError(msg) from error
    root = Field(value, "measurement", ImportFormatError)
    root.only("pairs", "sets", "message_bytes", "nccl_version", "date", "source")
    return Measurement(
        pairs=tuple(_pair(item) for item in root.items_at("pairs")),
        sets=tuple(_set(item) for item in root.items_at("sets")),
        message_bytes=root.integer_or_none("message_bytes"),
        nccl_version=root.text_or_none("nccl_version"),
        date=root.text_or_none("date"),
        source=root.text_or_none("source"),
    )


def _pair(field: Field) -> MeasuredPair:
    first, second, bandwidth = field.tuple_of(3)
    low, high = sorted((first.integer(), second.integer()))
    return MeasuredPair(low, high, bandwidth.number())


def _set(field: Field) -> MeasuredSet:
    gpus, bandwidth = field.tuple_of(2)
    return MeasuredSet(tuple(sorted(gpu.integer() for gpu in gpus.items())), bandwidth.number())


def _read_lines(text: str) -> Measurement:
    pairs: list[MeasuredPair] = []
    sets: list[MeasuredSet] = []
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        *indices, bandwidth = _SEPARATOR.split(stripped)
        if len(indices) < 2 or not all(_INDEX.fullmatch(i) for i in indices):  # noqa: PLR2004 - a pair
            msg = f"measurement line {number} is {quote(stripped)}, expected GPU indices, then GB/s"
            raise ImportFormatError(msg)
        if not _DECIMAL.fullmatch(bandwidth):
            msg = f"measurement line {number} ends with {quote(bandwidth)}, expected GB/s"
            raise ImportFormatError(msg)
        gpus = tuple(sorted(map(int, indices)))
        if len(gpus) == 2:  # noqa: PLR2004 - a pair
            pairs.append(MeasuredPair(*gpus, float(bandwidth)))
        else:
            sets.append(MeasuredSet(gpus, float(bandwidth)))
    return Measurement(pairs=tuple(pairs), sets=tuple(sets))


def write_measurement(measurement: Measurement) -> str:
    """Write the JSON form, which `parse_measurement` reads back; one pair or set a line.

    >>> print(write_measurement(Measurement(pairs=(MeasuredPair(0, 1, 42.2),), date="2026-11-21")))
    {
    "pairs": [
    [0, 1, 42.2]
    ],
    "date": "2026-11-21"
    }
    """
    members: list[str] = []
    pairs = [[p.first, p.second, p.bandwidth_gbytes_per_s] for p in measurement.pairs]
    sets = [[list(s.gpus), s.bandwidth_gbytes_per_s] for s in measurement.sets]
    for key, rows in (("pairs", pairs), ("sets", sets)):
        if rows:
            lines = ",\n".join(json.dumps(row) for row in rows)
            members.append(f'"{key}": [\n{lines}\n]')
    for key, value in (
        ("message_bytes", measurement.message_bytes),
        ("nccl_version", measurement.nccl_version),
        ("date", measurement.date),
        ("source", measurement.source),
    ):
        if value is not None:
            members.append(f'"{key}": {json.dumps(value)}')
    return "{\n" + ",\n".join(members) + "\n}\n"
