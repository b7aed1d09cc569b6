"""Other people's recordings of a node, one importer per format: text to a `NodeTopology`.

Reads no file and knows no cluster; what a source does not say stays unknown.
"""

from topology.importers.detect import FileFormat
from topology.importers.dispatch import import_text

__all__ = ["FileFormat", "import_text"]
