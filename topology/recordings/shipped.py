"""The machines that ship with the project, by name.

What it answers: which names there are, and the machine behind a name. It reads files of this
package only (importlib.resources), each at most once.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from topology.errors import InvalidRequest, quote
from topology.recordings.parse import parse_recording

if TYPE_CHECKING:
    from topology.model import NodeTopology

__all__ = ["load_recording", "recording_names"]

_PACKAGE = "topology.recordings"
_SUFFIX = ".toml"


@cache
def recording_names() -> tuple[str, ...]:
    """Names of the machines that ship with the project, ascending."""
    files = resources.files(_PACKAGE).iterdir()
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
    text = resources.files(_PACKAGE).joinpath(name + _SUFFIX).read_text(encoding="utf-8")
    return parse_recording(text)
