"""Pods that filter rejected, and which of them to requeue when devices come free.

Knows what pods requested; never selects GPUs and never refuses a pod itself.
"""

from extender.unschedulable.pod_groups import Requeue, UnschedulablePod
from extender.unschedulable.pool import UnschedulablePool

__all__ = ["Requeue", "UnschedulablePod", "UnschedulablePool"]
