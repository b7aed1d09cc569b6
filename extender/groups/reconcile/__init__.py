"""When a group is planned, and when its members are woken.

A queue of groups of which something changed or whose time has come, reconciled twice a second.
Knows when; what is claimed is `extender.groups.claims`'.
"""

from extender.groups.reconcile.delaying_queue import DelayingQueue
from extender.groups.reconcile.reconciler import Reconciler
from extender.groups.reconcile.round_robin import RoundRobin

__all__ = ["DelayingQueue", "Reconciler", "RoundRobin"]
