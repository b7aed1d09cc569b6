"""The exceptions of the pure core.

What it answers: which error a caller may see when it hands the core bad input. Ordinary outcomes
("does not fit") are values (`topology.select.selection`), never exceptions. Messages name the
object, the value and what was expected; foreign text is cut to `MAX_QUOTED` characters.

    TopologyError
    ├── InvalidTopology   a model value contradicts itself
    ├── UnknownDevice     a device index or id that the node does not have
    ├── InvalidRequest    a size, set or demand that no node could satisfy
    ├── PolicyError       a pod annotation with a value outside its closed set
    ├── CodecError        annotation text that is not a topology of a version we read
    ├── ImportFormatError a recording that cannot be read completely, with the reason
    └── Unreadable        an object of Kubernetes lacks what we need of it
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "MAX_QUOTED",
    "CodecError",
    "ImportFormatError",
    "InvalidRequest",
    "InvalidTopology",
    "PolicyError",
    "TopologyError",
    "UnknownDevice",
    "Unreadable",
    "file_fault",
    "nearest",
    "quote",
]

MAX_QUOTED = 80
"""Longest piece of foreign text that a message repeats, in characters."""


class TopologyError(Exception):
    """Any error of the core; `str()` is one sentence for people."""


class InvalidTopology(TopologyError):
    """A model value contradicts itself."""


class UnknownDevice(TopologyError):
    """A device index or id that the node does not have."""


class InvalidRequest(TopologyError):
    """A size, set or demand that no node could satisfy."""


class PolicyError(TopologyError):
    """A pod annotation with a value outside its closed set."""


class CodecError(TopologyError):
    """Annotation text that is not a topology of a version this program reads."""


class ImportFormatError(TopologyError):
    """A recording that cannot be read completely; the message says where and why."""


class Unreadable(TopologyError):
    """One object lacks what we need of it; `str()` names the field, its value and what we need."""


def quote(value: object) -> str:
    """Repeat a foreign value in a message, cut to `MAX_QUOTED` characters.

    >>> quote("nvlnk")
    "'nvlnk'"
    """
    try:
        text = repr(value)
    except RecursionError:  # JSON that was just read nests less deep than `repr` can follow
        text = f"{type(value).__name__} that is nested too deep"
    return text if len(text) <= MAX_QUOTED else text[: MAX_QUOTED - 1] + "…"


def file_fault(error: Exception) -> str:
    """Why a file cannot be used, for a message that names the file already.

    An `OSError` says what the system says, without its number and the path.

    >>> file_fault(FileNotFoundError(2, "No such file or directory", "a.yaml"))
    'no such file or directory'
    >>> file_fault(ValueError("embedded null byte"))
    'embedded null byte'
    """
    said = error.strerror if isinstance(error, OSError) else None
    return f"{said[0].lower()}{said[1:]}" if said else str(error)


def nearest(text: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """Name the known word that a misspelt one is like; empty where none is.

    `likeness` 0..1 is difflib's ratio; names with a common part, as resources have, need more.

    >>> nearest("nvlnk", ["nvlink", "numa"]), nearest("colour", ["nvlink", "numa"])
    ('; nearest: nvlink', '')
    """
    from difflib import get_close_matches  # noqa: PLC0415 - of faults alone, and programs are small

    return "".join(
        f"; nearest: {one}" for one in get_close_matches(text, [*known], n=1, cutoff=likeness)
    )
