"""Imports other people's recordings: text in, `NodeTopology` out.

What it answers: the topology that a text records, whatever tool wrote it. It must never let another
error out than `ImportFormatError`, and never take longer than the text's length warrants: what is
larger than any real recording is refused unread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from topology.errors import ImportFormatError, TopologyError, quote
from topology.importers.detect import FileFormat, detect_format
from topology.importers.tables.matrix import import_matrix
from topology.importers.tables.rocm import import_rocm_smi
from topology.importers.tables.smi import import_smi
from topology.importers.xml.hwloc import import_hwloc_xml
from topology.importers.xml.nccl import import_nccl_xml
from topology.model import decode_topology
from topology.recordings import parse_recording

if TYPE_CHECKING:
    from collections.abc import Callable

    from topology.model import NodeTopology

__all__ = ["import_text"]

MAX_CHARACTERS = 1024 * 1024
"""Longest text that is read. The largest of 235 public recordings has 137,469 characters."""


class _Importer(Protocol):
    def __call__(self, text: str, *, gpu_model: str | None = None) -> NodeTopology: ...


_FOREIGN_FORMATS: dict[FileFormat, _Importer] = {
    FileFormat.SMI: import_smi,
    FileFormat.NCCL_XML: import_nccl_xml,
    FileFormat.HWLOC_XML: import_hwloc_xml,
    FileFormat.ROCM_SMI: import_rocm_smi,
    FileFormat.MATRIX_CSV: import_matrix,
}
_OWN_FORMATS: dict[FileFormat, Callable[[str], NodeTopology]] = {
    FileFormat.ANNOTATION: decode_topology,
    FileFormat.RECORDING: parse_recording,
}


def import_text(
    text: str, *, gpu_model: str | None = None, file_format: FileFormat | None = None
) -> NodeTopology:
    r"""Read a recording of any format.

    `gpu_model` names GPUs that the text does not name; an annotation or recording keeps its own.
    `file_format` skips the detection. Raises `ImportFormatError`, and nothing else, with the
    place and the reason.

    >>> import_text("X NV4\nNV4 X").n_gpus
    2
    >>> import_text("hello")
    Traceback (most recent call last):
    topology.errors.ImportFormatError: no recording that can be read: it starts with 'hello', ...
    """
    if len(text) > MAX_CHARACTERS:
        msg = f"the text has {len(text)} characters, expected at most {MAX_CHARACTERS}"
        raise ImportFormatError(msg)
    if gpu_model is not None and not gpu_model.strip():
        msg = f"gpu_model is {quote(gpu_model)}, expected a product name, or None where unknown"
        raise ImportFormatError(msg)
    text = text.removeprefix("\ufeff")
    chosen = detect_format(text) if file_format is None else file_format
    try:
        if chosen in _OWN_FORMATS:
            return _OWN_FORMATS[chosen](text)
        return _FOREIGN_FORMATS[chosen](text, gpu_model=gpu_model)
    except ImportFormatError:
        raise
    except TopologyError as error:
        msg = f"{chosen.value}: {error}"
        raise ImportFormatError(msg) from error
