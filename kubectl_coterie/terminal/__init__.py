"""What commands print: tables as kubectl's, JSON and YAML, colour, and progress on standard error.

Knows no cluster.
"""

from kubectl_coterie.terminal.ages import age
from kubectl_coterie.terminal.output import Output
from kubectl_coterie.terminal.progress import Progress
from kubectl_coterie.terminal.style import Style
from kubectl_coterie.terminal.tables import Column, Table

__all__ = ["Column", "Output", "Progress", "Style", "Table", "age"]
