"""Which kind of recording is this text?

What it answers: the one format whose marks the text bears, detected by content, never by a file
name. It must never fall back to a guess: a text without marks is refused with what was looked for,
and output of a tool that shows too little is refused by the tool's name and what to run instead.

Method: marks are tried in a fixed order, the most specific first: XML root, JSON object, first key
of a recording, ROCm headings, `nvidia-smi topo` matrix, known tools of no use, plain matrix.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING

from topology.errors import ImportFormatError, quote
from topology.importers.tables.matrix import looks_like_matrix
from topology.importers.tables.smi_table import find_tables

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FileFormat", "detect_format"]


class FileFormat(Enum):
    """A format that can be imported; the value is its name on the command line."""

    SMI = "nvidia-smi"
    NCCL_XML = "nccl-xml"
    HWLOC_XML = "hwloc-xml"
    ROCM_SMI = "rocm-smi"
    MATRIX_CSV = "matrix-csv"
    ANNOTATION = "annotation"
    RECORDING = "recording"


_ROCM = re.compile(
    r"ROCm System Management Interface|between two GPUs|between DRM devices|\bGPU\[\d+\]\s*:"
    r"|^(?:ACCESS|WEIGHT|HOPS|LINK TYPE|NUMA BW|CACHE COHERANCY|ATOMICS) TABLE:",
    re.MULTILINE,
)
_ANNOTATION = re.compile(r"\{\s*\"v\"\s*:")
_VERSION = re.compile(r'"v"\s*:')
_RECORDING = re.compile(r"(?:[ \t]*(?:#.*)?\n)*(?:name|title|source|count)[ \t]*=[ \t]*[\"'\[0-9]")
_USELESS = (
    (
        re.compile(
            r"^[ \t]*Link \d+: (?:[\d.]+ GB/s|<inactive>)|NVLink information as all links",
            re.MULTILINE,
        ),
        (
            "this is `nvidia-smi nvlink -s` output: it lists each GPU's links, not where they end; "
            "run `nvidia-smi topo -m`"
        ),
    ),
    (
        re.compile(r"^/sys/devices/system/node/node\d+/", re.MULTILINE),
        "this is a listing of NUMA nodes from sysfs: it names no GPU; run `nvidia-smi topo -m`",
    ),
    (
        re.compile(r"^device_defaults:", re.MULTILINE),
        (
            "this is a mock NVML configuration: it describes no recorded machine; "
            "run `nvidia-smi topo -m` on it"
        ),
    ),
    (
        re.compile(r"^Machine \(.*\n(?:.*\n){0,3} *(?:Package|Group|NUMANode)", re.MULTILINE),
        (
            "this is lstopo's console text: it does not say which PCI devices are GPUs; "
            "run `lstopo --of xml`"
        ),
    ),
)


def detect_format(text: str) -> FileFormat:
    r"""Tell the format of a recording; linear in its length.

    Raises `ImportFormatError` where the text bears no format's marks, with what was looked for.

    >>> detect_format("     GPU0 GPU1\nGPU0  X   PIX\nGPU1 PIX   X")
    <FileFormat.SMI: 'nvidia-smi'>
    """
    body = text.lstrip()
    for is_marked, file_format in _MARKS:
        if is_marked(body):
            return file_format
    for mark, reason in _USELESS:
        if mark.search(body):
            raise ImportFormatError(reason)
    if looks_like_matrix(body):
        return FileFormat.MATRIX_CSV
    first = next((line for line in body.splitlines() if line.strip()), "")
    found = f"it starts with {quote(first)}" if first else "it is empty"
    msg = (
        f"no recording that can be read: {found}, expected an nvidia-smi or "
        "rocm-smi matrix, NCCL XML (<system>), hwloc XML (<topology>), a topology annotation "
        "({...}), a recording (TOML) or a plain matrix of labels"
    )
    raise ImportFormatError(msg)


def _has_xml_root(names: str) -> Callable[[str], bool]:
    root = re.compile(rf"<(?:!DOCTYPE )?(?:{names})\b")
    return lambda body: body.startswith("<") and root.search(body) is not None


_MARKS: tuple[tuple[Callable[[str], object], FileFormat], ...] = (
    (_has_xml_root("system|graphs"), FileFormat.NCCL_XML),
    (_has_xml_root("topology"), FileFormat.HWLOC_XML),
    (_ANNOTATION.match, FileFormat.ANNOTATION),
    (_RECORDING.match, FileFormat.RECORDING),
    (_ROCM.search, FileFormat.ROCM_SMI),
    (find_tables, FileFormat.SMI),
    (lambda body: body.startswith("{") and _VERSION.search(body), FileFormat.ANNOTATION),
)
"""The marks of the formats, in the order in which it is tried; anything true counts."""
