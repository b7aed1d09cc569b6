"""Real machines as data: the recordings that ship with the project, and their format.

What it answers: which machines there are by name, and what `topology.model.node_topology` value
each is. It must never hold a fact that the source does not record: what a source does not say
stays unknown. Every file names its sources; a machine that was derived from a recording says from
which, and what was changed.

One TOML file a machine beside this module. docs/recordings.md describes the format.
"""

from __future__ import annotations

from topology.recordings.parse import parse_recording
from topology.recordings.shipped import load_recording, recording_names

__all__ = ["load_recording", "parse_recording", "recording_names"]
