"""Real machines as data: the recordings that ship with the project, and their format.

What it answers: which machines there are by name, and what `topology.model` value each is. It must
never hold a fact that nobody recorded: what a source does not tell stays unknown. Every file names
its sources; a machine that was derived from a recording says from which, and what was changed.

One TOML file a machine beside this module. docs/recordings.md describes the format,
`topology.recordings.parse` reads it.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from topology.errors import InvalidRequest, quote
from topology.recordings.parse import parse_recording

if TYPE_CHECKING:
    from topology.model import NodeTopology

__all__ = ["load_recording", "parse_recording", "recording_names"]

_SUFFIX = ".toml"


@cache
def recording_names() -> tuple[str, ...]:
    """Names of the machines that ship with the project, ascending."""
    files = resources.files(__name__).iterdir()
    return tuple(sorted(f.name.removesuffix(_SUFFIX) for f in files if f.name.endswith(_SUFFIX)))


@cache
def load_recording(name: str) -> NodeTopology:
    """Read a machine that ships with the project; a second call returns the same value.

    Raises `InvalidRequest` for a name that is not among `recording_names()`.

    >>> load_recording("dgx-1-v100").n_gpus
    8
    """
    if name not in recording_names():
        known = ", ".join(recording_names())
        msg = f"recording {quote(name)} is not there, expected one of: {known}"
        raise InvalidRequest(msg)
    text = resources.files(__name__).joinpath(name + _SUFFIX).read_text(encoding="utf-8")
    return parse_recording(text)
