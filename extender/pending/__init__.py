"""Pods without a node: what they requested, why they wait, which to requeue when devices come free.

Knows what pods requested; never selects GPUs and never refuses a pod itself.
"""

from extender.pending.pending_pod import PendingPod, Requeue
from extender.pending.pending_pods import PendingPods
from extender.pending.sampling import is_sample_size
from extender.pending.shown_pod import shown_pod

__all__ = ["PendingPod", "PendingPods", "Requeue", "is_sample_size", "shown_pod"]
