"""Somebody else's recordings of a node, one importer per format.

What it answers: the `NodeTopology` that a text records. See `topology.importers.dispatch`
(`import_text`) and `topology.importers.detect` (which format it is).
"""

from __future__ import annotations

from topology.importers.detect import FileFormat, detect_format
from topology.importers.dispatch import import_text

__all__ = ["FileFormat", "detect_format", "import_text"]
