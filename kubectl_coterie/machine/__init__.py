"""A node's machine for terminals: who has which GPU, the drawing in characters, the matrix.

Pure: values in, lines out. Knows no cluster and asks nothing.
"""

from kubectl_coterie.machine.drawing import draw_machine
from kubectl_coterie.machine.matrix import matrix_lines
from kubectl_coterie.machine.owners import GpuOwner, owners_in_answer, owners_in_report

__all__ = ["GpuOwner", "draw_machine", "matrix_lines", "owners_in_answer", "owners_in_report"]
