"""Why a node or a pod was refused: one closed set.

What it answers: the constant sentence that kube-scheduler aggregates ("0/40 nodes are available: 12
no free GPU set ...") and the label of the same refusal in metrics. Text that varied from attempt to
attempt would requeue the pod for ever (Kubernetes 1.32+: a changed PodScheduled condition is an
event that wakes the pod), so a sentence holds no number and no name. The one exception is
INVALID_REQUEST, which is followed by the message about the pod's own annotations: a function of the
pod alone.
"""

from __future__ import annotations

from enum import Enum

from topology.select import UnfitReason

__all__ = ["Reason", "from_unfit"]


class Reason(Enum):
    """A refusal; the value is the sentence, the lower-case name the label in metrics."""

    # What the core says about the GPU sets of a node, under the same names. The first one
    # is said of the whole pod: its containers may be small and many.
    TOO_FEW_GPUS = "node has fewer GPUs than the pod asks for"
    NOT_ENOUGH_FREE = UnfitReason.NOT_ENOUGH_FREE.value
    CONTAINERS_TAKEN = UnfitReason.CONTAINERS_TAKEN.value
    MUST_INCLUDE = UnfitReason.MUST_INCLUDE.value
    MIXED_MODELS = UnfitReason.MIXED_MODELS.value
    AFFINITY_NEVER = UnfitReason.AFFINITY_NEVER.value
    AFFINITY_UNKNOWN = UnfitReason.AFFINITY_UNKNOWN.value
    AFFINITY_TAKEN = UnfitReason.AFFINITY_TAKEN.value
    NIC_NEVER = UnfitReason.NIC_NEVER.value
    NIC_UNKNOWN = UnfitReason.NIC_UNKNOWN.value
    NIC_TAKEN = UnfitReason.NIC_TAKEN.value
    BANDWIDTH_NEVER = UnfitReason.BANDWIDTH_NEVER.value
    BANDWIDTH_UNKNOWN = UnfitReason.BANDWIDTH_UNKNOWN.value
    BANDWIDTH_TAKEN = UnfitReason.BANDWIDTH_TAKEN.value
    ALIGNMENT_NEVER = UnfitReason.ALIGNMENT_NEVER.value
    ALIGNMENT_TAKEN = UnfitReason.ALIGNMENT_TAKEN.value
    ALIGNMENT_APART = UnfitReason.ALIGNMENT_APART.value

    # What only the extender knows about a node.
    NO_TOPOLOGY = "GPU topology of the node is unknown and the pod requires one"
    OTHER_RESOURCE = "node does not serve the pod's GPU resource"
    UNKNOWN_NODE = "node is not known to the extender"

    INVALID_REQUEST = "pod asks for something that cannot be meant"

    # Answers of a whole verb, never of a node.
    MALFORMED = "request is malformed"
    TOO_LARGE = "request body is too large"
    STALE = "state is not fresh"
    UNKNOWN_POD = "pod was never seen in a filter call, or has ended"
    BOUND_ELSEWHERE = "pod is bound to another node"
    LEDGER = "ledger refused the plan"

    # Why a bind came to nothing at the API server.
    POD_GONE = "pod is gone"
    POD_RECREATED = "pod is gone, and another has its name"
    POD_DELETED = "pod is being deleted"
    POD_GATED = "pod has scheduling gates"
    POD_CHANGED = "pod changed again while it was bound"
    UNDER_WAY = "another bind of the pod is under way"
    WRITE_REFUSED = "API server refused the binding"
    OUTCOME_UNKNOWN = "API server did not tell whether the pod is bound"
    NOT_READ = "pod could not be read from the API server"
    NO_HOLDER = "no replica that may bind can be reached"

    # Why a preemption came to nothing.
    NO_VICTIMS = "no pods of lower priority hold a GPU set for the pod"
    ROOM_IN_THE_MAKING = "pods whose place the pod takes are leaving already"
    NO_NEED = "pod has a place without any eviction"
    NODES_NOT_READ = "nodes could not be read from the API server"

    @property
    def label(self) -> str:
        """Label value in metrics and logs."""
        return self.name.lower()


def from_unfit(reason: UnfitReason) -> Reason:
    """The node's reason for what the core says about its GPU sets.

    >>> from_unfit(UnfitReason.NIC_TAKEN)
    <Reason.NIC_TAKEN: 'no free GPU set has an RDMA NIC within PXB'>
    """
    return Reason[reason.name]
