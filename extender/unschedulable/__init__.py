"""Pods that filter rejected, and which of them to requeue when devices come free.

Knows what pods asked for; never selects GPUs and never refuses a pod itself.
"""

from extender.unschedulable.pool import Requeue, UnschedulablePod, UnschedulablePool

__all__ = ["Requeue", "UnschedulablePod", "UnschedulablePool"]
