"""What a command was given: FILE as a machine, lists of a cluster's objects, and GPU indices.

Every fault is an error of the core: `ImportFormatError` for a file, `InvalidRequest` for an option.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from difflib import SequenceMatcher, get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from topology.errors import ImportFormatError, InvalidRequest, InvalidTopology, file_fault, quote
from topology.importers import import_text
from topology.model import GPU_MODEL_NAMES, MAX_TABLE_GPUS, find_gpu_model, parse_measurement
from topology.printable import printable
from topology.recordings import load_recording, recording_names

if TYPE_CHECKING:
    from topology.importers import FileFormat
    from topology.model import NodeTopology

__all__ = ["MAX_BYTES", "MAX_LIST_BYTES", "read_gpus", "read_list", "read_machine"]

MAX_BYTES = 16 * 1024 * 1024
"""Most that is read of a file: four bytes for each character that an importer accepts."""
MAX_LIST_BYTES = 2 * 1024 * 1024 * 1024
"""Most that is read of a list of a cluster's objects: 40,000 pods of 50 KB each."""

_RANGE = re.compile(r"\s*([0-9]{1,4})(?:-([0-9]{1,4}))?\s*")


def read_machine(
    file: str | None,
    gpu_model: str | None,
    file_format: FileFormat | None,
    measured: str | None = None,
) -> NodeTopology:
    """Read FILE: standard input, an existing file, or a shipped machine; in this order.

    Without FILE it is this machine, and standard error says so.
    """
    if gpu_model is not None and find_gpu_model(gpu_model) is None:
        raise InvalidRequest(_unknown_model(gpu_model))
    if file is None:
        if file_format is not None:
            msg = "--format without FILE, expected FILE: this machine is read by nvidia-smi"
            raise InvalidRequest(msg)
        from topology.cli.this_machine import read_this_machine  # noqa: PLC0415 - runs a program, which few need

        topology = read_this_machine(gpu_model)
        print("no FILE: this machine, as nvidia-smi shows it", file=sys.stderr)  # noqa: T201 - for people
    elif file == "-" or _exists(file):
        topology = import_text(_read(file), gpu_model=gpu_model, file_format=file_format)
        if topology.name is None and file != "-":
            topology = replace(topology, name=printable(Path(file).stem) or None)
    elif file not in recording_names():
        raise ImportFormatError(_unknown_machine(file))
    elif gpu_model is not None or file_format is not None:
        msg = f"{file} is a shipped machine, expected no --gpu-model and no --format with it"
        raise InvalidRequest(msg)
    else:
        topology = load_recording(file)
    return topology if measured is None else _with_measured(topology, measured)


def _with_measured(topology: NodeTopology, measured: str) -> NodeTopology:
    if topology.n_gpus > MAX_TABLE_GPUS:
        msg = (
            f"--measured with {topology.n_gpus} GPUs, expected at most {MAX_TABLE_GPUS}: "
            "measurements do not enter the value of bigger nodes"
        )
        raise InvalidRequest(msg)
    try:
        return replace(topology, measurement=parse_measurement(_read(measured)))
    except InvalidTopology as error:
        msg = f"{quote(measured)}: {error}"
        raise ImportFormatError(msg) from error


def _unknown_model(name: str) -> str:
    wanted = name.lower()

    def likeness(known: str) -> float:
        parts = [known.lower(), *known.lower().replace("-", " ").split()]
        return max(SequenceMatcher(None, wanted, part).ratio() for part in parts)

    near = sorted(GPU_MODEL_NAMES, key=likeness, reverse=True)[:3]
    return f"--gpu-model is {quote(name)}, which is not known; near names: {', '.join(near)}"


def _exists(file: str) -> bool:
    try:
        return Path(file).exists()
    except OSError as error:
        msg = f"{quote(file)} cannot be read: {file_fault(error)}"
        raise ImportFormatError(msg) from error


def _unknown_machine(file: str) -> str:
    near = get_close_matches(file.lower(), recording_names(), cutoff=0.5)
    hint = f"; near names: {', '.join(near)}" if near else ""
    return f"{quote(file)} is neither a file nor a shipped machine (see `recordings`){hint}"


def read_list(file: str, option: str) -> object:
    """Read the JSON of a list of a cluster's objects, from a file or standard input."""
    raw = _read_bytes(file, MAX_LIST_BYTES, "a list of a cluster's objects")
    if not raw.strip():
        msg = f"{option} {quote(file)} is empty, expected what kubectl get -o json prints"
        raise ImportFormatError(msg)
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        msg = f"{option} {quote(file)} is no JSON ({why}), expected what kubectl get -o json prints"
        raise ImportFormatError(msg) from error


def _read(file: str) -> str:
    return _read_bytes(file, MAX_BYTES, "a recording").decode("utf-8-sig", errors="replace")


def _read_bytes(file: str, most: int, expected: str) -> bytes:
    try:
        if file == "-":
            raw = sys.stdin.buffer.read(most + 1)
        else:
            with Path(file).open("rb") as source:
                raw = source.read(most + 1)
    except (OSError, ValueError) as error:
        msg = f"{quote(file)} cannot be read: {file_fault(error)}"
        raise ImportFormatError(msg) from error
    if len(raw) > most:
        msg = f"{quote(file)} has more than {most} bytes, expected {expected}"
        raise ImportFormatError(msg)
    return raw


def read_gpus(text: str, option: str) -> tuple[int, ...]:
    """Read `0,3,5` or `0-3,6`, each GPU once; the node checks which GPUs it has.

    >>> read_gpus("6,0-2", "--gpus")
    (0, 1, 2, 6)
    """
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            msg = f"{option} is {quote(text)}, expected GPU indices such as 0,3,5 or 0-3,6"
            raise InvalidRequest(msg)
        low, high = int(match[1]), int(match[2] or match[1])
        if low > high:
            msg = f"{option} has {quote(part)}, expected the lower index first"
            raise InvalidRequest(msg)
        gpus = range(low, high + 1)
        if twice := found.intersection(gpus):
            msg = f"{option} is {quote(text)}, which names GPU {min(twice)} twice, expected it once"
            raise InvalidRequest(msg)
        found.update(gpus)
    return tuple(sorted(found))
