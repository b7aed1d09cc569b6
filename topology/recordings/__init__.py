"""Real machines as data: the recordings that ship with the project, and their format.

Holds what a source records and no more: unknown stays unknown, and each file names its sources.
"""

from __future__ import annotations

from topology.recordings.parse import parse_recording
from topology.recordings.shipped import load_recording, recording_names

__all__ = ["load_recording", "parse_recording", "recording_names"]
