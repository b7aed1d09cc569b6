"""Nodes that are reserved for groups that have found no room for long, and whom that keeps out.

Knows when and which nodes, from what a plan would count there; claims no device and evicts no pod.
"""

from extender.groups.reservation.patience import Patience
from extender.groups.reservation.reserved_nodes import Reservation, ReservedNodes

__all__ = ["Patience", "Reservation", "ReservedNodes"]
