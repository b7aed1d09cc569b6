"""Pods without a node: what they requested, why they wait, which to requeue when devices come free.

Knows what pods requested; never selects GPUs and never refuses a pod itself.
"""

from extender.pending.pending_pods import PendingPods
from extender.pending.sampling import is_sample_size
from extender.pending.shown_pod import shown_pod
from extender.pending.waiting_pod import Requeue, WaitingPod

__all__ = ["PendingPods", "Requeue", "WaitingPod", "is_sample_size", "shown_pod"]
