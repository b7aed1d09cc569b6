"""Pods that filter rejected, and which of them to requeue when devices come free.

Knows what pods requested; never selects GPUs and never refuses a pod itself.
"""

from extender.unschedulable.pod_groups import Requeue, UnschedulablePod
from extender.unschedulable.pool import UnschedulablePool
from extender.unschedulable.sampling import is_sample_size

__all__ = ["Requeue", "UnschedulablePod", "UnschedulablePool", "is_sample_size"]
