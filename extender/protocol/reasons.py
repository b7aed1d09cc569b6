"""Why a node or a pod was refused: one closed set.

Each has the constant sentence that kube-scheduler aggregates ("0/40 nodes are available: 12
no free GPU set ...") and the label of the same refusal in metrics. Text that varied from attempt to
attempt would requeue the pod for ever (Kubernetes 1.32+: a changed PodScheduled condition is an
event that requeues the pod), so a sentence holds no number and no name. The one exception is
INVALID_REQUEST, which is followed by the message about the pod's own annotations: a function of the
pod alone.
"""

from __future__ import annotations

from enum import Enum
from typing import Self

from topology.select import UnfitReason

__all__ = ["Reason", "from_unfit"]


class Reason(Enum):
    """A refusal; the value is the sentence, the lower-case name the label in metrics.

    `advice` says what to do about it (docs/operator-guide.md, "Reasons").
    """

    _value_: str
    advice: str

    def __new__(cls, sentence: str, advice: str) -> Self:
        """Make a member whose value is the sentence alone."""
        reason = object.__new__(cls)
        reason._value_ = sentence
        reason.advice = advice
        return reason

    # What the core says about the GPU sets of a node, under the same names. The first one
    # is said of the whole pod: its containers may be small and many.
    TOO_FEW_GPUS = (
        "node has fewer GPUs than the pod requests",
        "request fewer, or add larger machines",
    )
    NOT_ENOUGH_FREE = (UnfitReason.NOT_ENOUGH_FREE.value, "wait, or add nodes")
    CONTAINERS_TAKEN = (UnfitReason.CONTAINERS_TAKEN.value, "wait, or request fewer per container")
    MUST_INCLUDE = (
        UnfitReason.MUST_INCLUDE.value,
        "a fault: filter never requests GPUs by name; report it",
    )
    MIXED_MODELS = (
        UnfitReason.MIXED_MODELS.value,
        "wait; or `coterie.gpu/affinity: none` where mixing models is acceptable",
    )
    AFFINITY_NEVER = (
        UnfitReason.AFFINITY_NEVER.value,
        "request another size or affinity, or add other machines",
    )
    AFFINITY_UNKNOWN = (
        UnfitReason.AFFINITY_UNKNOWN.value,
        "publish a complete topology, or use `coterie.gpu/policy: preferred`",
    )
    AFFINITY_TAKEN = (
        UnfitReason.AFFINITY_TAKEN.value,
        "wait, or use `coterie.gpu/policy: preferred`",
    )
    NIC_NEVER = (
        UnfitReason.NIC_NEVER.value,
        "drop `coterie.gpu/nic: required`, or add other machines",
    )
    NIC_UNKNOWN = (
        UnfitReason.NIC_UNKNOWN.value,
        "publish a complete topology, or use `coterie.gpu/nic: preferred`",
    )
    NIC_TAKEN = (UnfitReason.NIC_TAKEN.value, "wait, or use `coterie.gpu/nic: preferred`")
    BANDWIDTH_NEVER = (
        UnfitReason.BANDWIDTH_NEVER.value,
        "lower `coterie.gpu/min-bandwidth`, or add other machines",
    )
    BANDWIDTH_UNKNOWN = (
        UnfitReason.BANDWIDTH_UNKNOWN.value,
        "publish a complete topology, or measured bandwidths",
    )
    BANDWIDTH_TAKEN = (UnfitReason.BANDWIDTH_TAKEN.value, "wait, or lower the bound")
    ALIGNMENT_NEVER = (
        UnfitReason.ALIGNMENT_NEVER.value,
        (
            "request fewer GPUs per container (scope `pod`: per pod), or give such pods nodes "
            "with another `topologyManagerPolicy`"
        ),
    )
    ALIGNMENT_TAKEN = (
        UnfitReason.ALIGNMENT_TAKEN.value,
        (
            "wait: enough GPUs are free, but on more NUMA nodes than the policy allows; bound "
            "there, the pod would fail for good with `TopologyAffinityError`"
        ),
    )
    ALIGNMENT_APART = (
        UnfitReason.ALIGNMENT_APART.value,
        (
            "wait; or drop what the pod requires, since the kubelet and not Coterie chooses the "
            "NUMA nodes"
        ),
    )

    # What only the extender knows about a node.
    NO_TOPOLOGY = (
        "GPU topology of the node is unknown and the pod requires one",
        "install the node plugin there; where it runs, read its log",
    )
    OTHER_RESOURCE = (
        "node does not serve the pod's GPU resource",
        "check the resource name in pod and nodes",
    )
    UNKNOWN_NODE = (
        "node is not known to the extender",
        "check that the extender and the scheduler see the same cluster",
    )

    # Why a member of a group waits.
    GROUP_WAITING = (
        "waits for its group: members are missing",
        (
            "check `coterie.gpu/group-size` and that all members exist; a controller that creates "
            "them one after the other completes no group. Pods that ended do not count: where some "
            "have ended and the others have no node, delete the job and create it again"
        ),
    )
    GROUP_PLACING = (
        "waits for its group: members are being placed",
        "nothing: it is tried again at once",
    )
    GROUP_NO_ROOM = (
        "waits for its group: no domain has room for all members",
        "wait, add nodes, or use `coterie.gpu/group-policy: preferred`",
    )
    GROUP_NOT_BOUND = (
        "waits for its group: members were not bound where they had a place",
        (
            "check what else the members need on nodes (CPU, memory, volumes, ports); other pods "
            "may go before the group meanwhile"
        ),
    )
    GROUP_TOO_SLOW = (
        "waits for its group: no place is as fast as it requires",
        (
            "wait, or lower `coterie.gpu/min-bandwidth`, which applies to the whole group; "
            "`explain` says what is predicted, and what is unknown"
        ),
    )
    GROUP_ONE_MODEL = (
        "waits for its group: no GPU model has room for all members",
        (
            "wait, add nodes of one GPU model, or use `coterie.gpu/affinity: none` on all members "
            "where mixing models is acceptable"
        ),
    )
    GROUP_NEVER = (
        "never: no domain of this cluster holds the group",
        "request a smaller group or a wider domain",
    )
    GROUP_MODEL_NEVER = (
        "never: no GPU model of this cluster holds the group",
        (
            "request a smaller group, or use `coterie.gpu/affinity: none` on all members where "
            "mixing models is acceptable"
        ),
    )
    GROUP_DIFFERS = (
        "members of the group state different sizes, domains or policies",
        "give all members the same `coterie.gpu/group` annotations",
    )

    # Members down to this one refuse a pod; extender.observe creates their series at start.
    INVALID_REQUEST = (
        "pod has an invalid GPU request",
        "correct what the message names",
    )

    # Of a pod that filter was not called for: only the read API says it.
    NOT_OFFERED = (
        "kube-scheduler has not offered the pod to the extender",
        (
            "a moment after its creation this is normal; else read its message: kube-scheduler's "
            "own count of GPUs, CPU, memory, taints or selectors leaves no node before the "
            "extender is called"
        ),
    )

    # Answers of a whole verb, never of a node.
    MALFORMED = (
        "request is malformed",
        "check that it is kube-scheduler that calls, with `nodeCacheCapable: true`",
    )
    TOO_LARGE = ("request body is too large", "raise `body_limit_bytes`")
    STALE = (
        "state is not fresh",
        "check the API server: no watch event for longer than `staleness_bound_s`",
    )
    NOT_RATED = (
        "sets of the node are not rated yet",
        "harmless once: the scheduler retries in seconds; if it goes on, raise `rating_budget_s`",
    )
    UNKNOWN_POD = (
        "pod was never seen in a filter call, or has ended",
        "harmless once: the scheduler filters again",
    )
    NO_RESOURCE = (
        "pod requests none of the extender's resources",
        (
            "check who calls bind: kube-scheduler does not for such a pod, where its "
            "`managedResources` are the setting `resources`"
        ),
    )
    OTHER_SCHEDULER = (
        "pod names a scheduler that is none of the extender's",
        "check who calls bind; name all profiles of the scheduler in `scheduler_names`",
    )
    BOUND_ELSEWHERE = (
        "pod is bound to another node",
        "harmless once: a repeated bind named another node",
    )
    DEVICES_UNAVAILABLE = (
        "devices of the plan are no longer available",
        "harmless once: another pod was faster; repeated, report it with the decision log",
    )

    # Why a bind came to nothing at the API server.
    POD_GONE = ("pod is gone", "nothing: it was deleted while it was bound")
    POD_RECREATED = (
        "pod is gone, and another has its name",
        "nothing: the new pod is scheduled by itself",
    )
    POD_DELETED = ("pod is being deleted", "nothing")
    POD_GATED = (
        "pod has scheduling gates",
        "find out who binds pods whose gates are still there: kube-scheduler does not",
    )
    POD_CHANGED = (
        "pod changed again while it was bound",
        "harmless once: kube-scheduler retries; repeated, find out who keeps writing the pod",
    )
    UNDER_WAY = (
        "another bind of the pod is under way",
        (
            "harmless once: a repeated bind came before the first was answered; often, raise "
            "`httpTimeout`"
        ),
    )
    WRITE_REFUSED = (
        "API server refused the binding",
        (
            "read the detail in the log: the role may lack `create` on `pods/binding`, or an "
            "admission policy objects"
        ),
    )
    WRITE_UNSENT = (
        "binding was not sent to the API server",
        "check that the API server can be reached, and its latency; kube-scheduler retries the pod",
    )
    OUTCOME_UNKNOWN = (
        "API server did not answer whether the pod is bound",
        "check the API server's latency; the pod's next bind finds out",
    )
    NOT_READ = (
        "pod could not be read from the API server",
        "check the API server, and whether the role has `get` on `pods`",
    )

    GROUP_INCOMPLETE = (
        "binds of the other members of the group did not come in time",
        "harmless once: all members are tried again; repeated, see which member is not offered",
    )
    GROUP_NOT_PLANNED = (
        "no GPUs are claimed for the member of a group",
        "harmless once: claims ended with their time, and the group is planned again",
    )

    # Why a preemption came to nothing.
    GROUP_UNDECIDED = (
        "no pod is evicted for a member of a group",
        "wait, or end pods of lower priority yourself",
    )
    NO_VICTIMS = (
        "no pods of lower priority hold a GPU set for the pod",
        "nothing: evicting pods would not help it; `explain` shows what each node lacks",
    )
    PREEMPTION_IN_PROGRESS = (
        "waiting for preempted pods to terminate",
        "nothing; if it lasts, check why pods on the nominated node do not end",
    )
    NO_NEED = (
        "pod has a place without any eviction",
        "nothing: something became free meanwhile, and the pod is retried",
    )
    NODES_NOT_READ = (
        "nodes could not be read from the API server",
        (
            "check the API server, and whether the role has `list` on `pods` and "
            "`poddisruptionbudgets` and `get` on `nodes`"
        ),
    )

    # Of explanations and what-ifs alone: kube-scheduler names no such node to an extender.
    NODE_AFFINITY = (
        "not allowed by the pod's nodeSelector or node affinity",
        "correct the pod's nodeSelector or node affinity, or label nodes for it",
    )
    NODE_UNSCHEDULABLE = (
        "node is cordoned, not ready, unreachable or under pressure",
        "see `kubectl describe node`; `kubectl uncordon` it where it is only cordoned",
    )

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
