"""Why a node or a pod was refused: one closed set, and all that is said of each member.

Each has the constant sentence that kube-scheduler aggregates ("0/40 nodes are available: 12
no free GPU set ...") and the label of the same refusal in metrics. Text that varied from attempt to
attempt would requeue the pod for ever (Kubernetes 1.32+: a changed PodScheduled condition is an
event that requeues the pod), so a sentence holds no number and no name. The one exception is
INVALID_REQUEST, which is followed by the message about the pod's own annotations: a function of the
pod alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Self

from topology.annotations import Affinity
from topology.select import UnfitReason

if TYPE_CHECKING:
    from extender.protocol.pod_request import PodRequest, Shape

__all__ = ["MAY_PASS", "TAKEN", "Outlook", "Reason"]


class Outlook(Enum):
    """What a refusal is about, and whether it may pass; the value is said above its table."""

    BY_EVICTION = (
        "Enough GPUs are free, but not as the pod requires them: this passes when pods end, or "
        "with `preempts_for_topology` by preemption."
    )
    WHEN_PODS_END = (
        "The GPUs that the pod could have are in use or unhealthy, or the kubelet would not give "
        "them together: this passes when pods end or GPUs recover."
    )
    NEVER = "The node can never take the pod as it is, also when empty."
    UNKNOWN = "What the pod requires is not known of the node."
    GROUP = "The pod is a member of a [group](user-guide.md#several-nodes-groups)."
    SETUP = "Nodes or requests do not fit Coterie's set-up."
    NOT_READY = "The extender cannot answer now; kube-scheduler retries."
    BINDING = "The binding failed (`binding rejected`); kube-scheduler retries the pod."
    PREEMPTION = "A preemption led to nothing; these are in the log and in metrics."


_LINKS = {
    Affinity.NVLINK: ("NVLink ", "no NVLink set of {n}"),
    Affinity.PCIE_SWITCH: ("PCIe switch ", "no set of {n} below one PCIe switch"),
    Affinity.NUMA: ("NUMA ", "no set of {n} in one NUMA node"),
}
"""How a required affinity is written before "set", and what a machine lacks that has none."""


@dataclass(frozen=True, slots=True)
class ReasonRow:
    """What is said of a refusal: its constant sentence, and what to do about it.

    `short` is a few words for tables, where there is something shorter than the sentence; `{link}`
    stands for the required affinity. `lacks` is what a machine lacks that never fits: `{n}` is the
    size of the pod's largest container, `{gpus}` that of the pod.
    """

    outlook: Outlook
    sentence: str
    advice: str
    short: str = ""
    lacks: str = ""


_by_eviction = partial(ReasonRow, Outlook.BY_EVICTION)
_when_pods_end = partial(ReasonRow, Outlook.WHEN_PODS_END)
_never = partial(ReasonRow, Outlook.NEVER, short="never on this node")
_unknown = partial(ReasonRow, Outlook.UNKNOWN)
_group = partial(ReasonRow, Outlook.GROUP)
_setup = partial(ReasonRow, Outlook.SETUP)
_not_ready = partial(ReasonRow, Outlook.NOT_READY)
_binding = partial(ReasonRow, Outlook.BINDING)
_preemption = partial(ReasonRow, Outlook.PREEMPTION)


class Reason(Enum):
    """A refusal; the value is the sentence, the lower-case name the label in metrics."""

    _value_: str
    row: ReasonRow

    def __new__(cls, row: ReasonRow) -> Self:
        """Make a member whose value is the sentence alone."""
        reason = object.__new__(cls)
        reason._value_ = row.sentence
        reason.row = row
        return reason

    # What the core says about the GPU sets of a node, under the same names. The first one
    # is said of the whole pod: its containers may be small and many.
    TOO_FEW_GPUS = _never(
        "node has fewer GPUs than the pod requests",
        "request fewer, make several pods of it as a group, or add larger machines",
        lacks="fewer than {gpus}",
    )
    NOT_ENOUGH_FREE = _when_pods_end(UnfitReason.NOT_ENOUGH_FREE.value, "wait, or add nodes")
    CONTAINERS_TAKEN = _by_eviction(
        UnfitReason.CONTAINERS_TAKEN.value,
        "wait, or request fewer per container",
        "no free sets for all containers",
    )
    MUST_INCLUDE = _setup(
        UnfitReason.MUST_INCLUDE.value, "a fault: filter never requests GPUs by name; report it"
    )
    MIXED_MODELS = _when_pods_end(
        UnfitReason.MIXED_MODELS.value,
        "wait; a set holds GPUs of one model, unless the pod has `coterie.gpu/affinity: none`",
        "too few free GPUs of one model",
    )
    AFFINITY_NEVER = _never(
        UnfitReason.AFFINITY_NEVER.value, "request another size or affinity, or add other machines"
    )
    AFFINITY_UNKNOWN = _unknown(
        UnfitReason.AFFINITY_UNKNOWN.value,
        "publish a complete topology, or use `coterie.gpu/policy: preferred`",
        "links unknown",
    )
    AFFINITY_TAKEN = _by_eviction(
        UnfitReason.AFFINITY_TAKEN.value,
        "wait, or use `coterie.gpu/policy: preferred`",
        "no free {link}set",
    )
    NIC_NEVER = _never(
        UnfitReason.NIC_NEVER.value,
        "drop `coterie.gpu/nic: required`, or add other machines",
        lacks="no set of {n} near an RDMA NIC",
    )
    NIC_UNKNOWN = _unknown(
        UnfitReason.NIC_UNKNOWN.value,
        "publish a complete topology, or use `coterie.gpu/nic: preferred`",
        "NICs unknown",
    )
    NIC_TAKEN = _by_eviction(
        UnfitReason.NIC_TAKEN.value,
        "wait, or use `coterie.gpu/nic: preferred`",
        "no free set near a NIC",
    )
    BANDWIDTH_NEVER = _never(
        UnfitReason.BANDWIDTH_NEVER.value,
        "lower `coterie.gpu/min-bandwidth` (the model's stated error is subtracted from a "
        "set's bandwidth), or add other machines",
        lacks="no set of {n} that is fast enough",
    )
    BANDWIDTH_UNKNOWN = _unknown(
        UnfitReason.BANDWIDTH_UNKNOWN.value,
        "publish a complete topology, or measured bandwidths",
        "bandwidth unknown",
    )
    BANDWIDTH_TAKEN = _by_eviction(
        UnfitReason.BANDWIDTH_TAKEN.value,
        "wait, or lower the bound",
        "no free set that is fast enough",
    )
    ALIGNMENT_NEVER = _never(
        UnfitReason.ALIGNMENT_NEVER.value,
        "request fewer GPUs per container (scope `pod`: per pod), or give such pods nodes "
        "with another `topologyManagerPolicy`",
        lacks="no NUMA nodes for a set of {n}, as the kubelet's policy wants them",
    )
    ALIGNMENT_TAKEN = _by_eviction(
        UnfitReason.ALIGNMENT_TAKEN.value,
        "wait: enough GPUs are free, but on more NUMA nodes than the policy allows; bound "
        "there, the pod would fail for good with `TopologyAffinityError`",
        "free GPUs on too many NUMA nodes",
    )
    ALIGNMENT_APART = _when_pods_end(
        UnfitReason.ALIGNMENT_APART.value,
        "wait; or drop what the pod requires, since the kubelet and not Coterie chooses the"
        " NUMA nodes",
        "no such set by NUMA policy",
    )

    # What only the extender knows about a node.
    NO_TOPOLOGY = _unknown(
        "GPU topology of the node is unknown and the pod requires one",
        "install the node plugin there; where it runs, read its log",
        "topology unknown",
    )
    OTHER_RESOURCE = _setup(
        "node does not serve the pod's GPU resource",
        "check the resource name in pod and nodes",
        "not the pod's GPU resource",
    )
    UNKNOWN_NODE = _setup(
        "node is not known to the extender",
        "check that the extender and the scheduler see the same cluster",
    )
    GROUP_WAITING = _group(
        "waits for its group: members are missing",
        "check `coterie.gpu/group-size` and that all members exist; gated pods, those of "
        "another scheduler and those that ended do not count. A controller that creates "
        "them one after the other completes no group. Where some have ended and the others "
        "have no node, delete the job and create it again",
        "group members missing",
    )
    GROUP_PLACING = _group(
        "waits for its group: members are being placed",
        "nothing: it is tried again at once",
        "group is being placed",
    )
    GROUP_NO_ROOM = _group(
        "waits for its group: no domain has room for all members",
        "wait, add nodes, or use `coterie.gpu/group-policy: preferred`; smaller pods [may "
        "go before it](#large-groups-on-a-full-cluster)",
        "no room for its group",
    )
    GROUP_NOT_BOUND = _group(
        "waits for its group: not all members reached bind in time",
        "check what else the members need on nodes (CPU, memory, volumes, ports); other "
        "pods may go before the group meanwhile",
        "group was not bound",
    )
    GROUP_TOO_SLOW = _group(
        "waits for its group: no place is as fast as it requires",
        "wait, or lower `coterie.gpu/min-bandwidth`, which applies to the whole group; "
        "`explain` says what is predicted, and what is unknown",
        "no fast place for its group",
    )
    GROUP_ONE_MODEL = _group(
        "waits for its group: no GPU model has room for all members",
        "wait, add nodes of one GPU model, or use `coterie.gpu/affinity: none` on all "
        "members where mixing models is acceptable",
        "no room on one GPU model",
    )
    GROUP_NEVER = _group(
        "never: no domain of this cluster holds the group",
        "request a smaller group or a wider domain: the largest one is too small even when "
        "it is empty, or no node has that level's label",
        "never for its group",
    )
    GROUP_MODEL_NEVER = _group(
        "never: no GPU model of this cluster holds the group",
        "request a smaller group, or use `coterie.gpu/affinity: none` on all members where "
        "mixing models is acceptable",
        "never on one GPU model",
    )
    GROUP_DIFFERS = _group(
        "members of the group state different sizes, domains or policies",
        "give all members the same `coterie.gpu/group` annotations; often two jobs have one"
        " group's name. `explain` names two members and what each states",
        "group members differ",
    )
    # Members down to this one refuse a pod; extender.observe creates their series at start.
    INVALID_REQUEST = _setup("pod has an invalid GPU request", "correct what the message names")
    # Of a pod that filter was not called for: only the read API says it.
    NOT_OFFERED = _setup(
        "kube-scheduler has not offered the pod to the extender",
        "a moment after the pod's creation this is normal; else read the scheduler's message on "
        "it: GPUs by number, CPU, memory, taints or selectors leave no node before the extender "
        "is called. Without a message no scheduler of that name runs, or none leads",
    )
    MALFORMED = _setup(
        "request is malformed",
        "check that it is kube-scheduler that calls, with `nodeCacheCapable: true`",
    )
    TOO_LARGE = _setup("request body is too large", "raise `body_limit_bytes`")
    STALE = _not_ready(
        "state is not fresh",
        "check the API server: no watch event for longer than `staleness_bound_s`, or the "
        "first lists are not complete; [`/readyz`](operations.md#readiness) says what is "
        "missing",
    )
    NOT_RATED = _not_ready(
        "sets of the node are not rated yet",
        "harmless once: the scheduler retries in seconds; if it goes on, raise `rating_budget_s`",
    )
    UNKNOWN_POD = _binding(
        "pod was never seen in a filter call, or has ended",
        "harmless once, as after a restart: the scheduler filters again",
    )
    NO_RESOURCE = _binding(
        "pod requests none of the extender's resources",
        "check who calls bind: kube-scheduler does not for such a pod, where its "
        "`managedResources` are the setting `resources`",
    )
    OTHER_SCHEDULER = _binding(
        "pod names a scheduler that is none of the extender's",
        "check who calls bind; name all profiles of the scheduler in `scheduler_names`",
    )
    BOUND_ELSEWHERE = _binding(
        "pod is bound to another node", "harmless once: a repeated bind named another node"
    )
    DEVICES_UNAVAILABLE = _binding(
        "devices of the plan are no longer available",
        "harmless once: another pod was faster, or a GPU became unhealthy; repeated, report"
        " it with the decision log",
    )
    POD_GONE = _binding("pod is gone", "nothing: it was deleted while it was bound")
    POD_RECREATED = _binding(
        "pod is gone, and another has its name", "nothing: the new pod is scheduled by itself"
    )
    POD_DELETED = _binding("pod is being deleted", "nothing")
    POD_GATED = _binding(
        "pod has scheduling gates",
        "find out who binds pods whose gates are still there: kube-scheduler does not",
    )
    POD_CHANGED = _binding(
        "pod changed again while it was bound",
        "harmless once: kube-scheduler retries; repeated, find out who keeps writing the pod",
    )
    UNDER_WAY = _binding(
        "another bind of the pod is under way",
        "harmless once: a repeated bind came before the first was answered; often, raise "
        "`httpTimeout`",
    )
    WRITE_REFUSED = _binding(
        "API server refused the binding",
        "read the Event `GpuBindRefused`: the role may lack `create` on `pods/binding`, or "
        "an admission policy objects",
    )
    WRITE_UNSENT = _binding(
        "binding was not sent to the API server",
        "check that the API server can be reached, and its latency; kube-scheduler retries the pod",
    )
    OUTCOME_UNKNOWN = _binding(
        "API server did not answer whether the pod is bound",
        "check the API server's latency; the plan is kept, and the pod's next bind finds out",
    )
    NOT_READ = _binding(
        "pod could not be read from the API server",
        "check the API server, and whether the role has `get` on `pods`",
    )
    GROUP_INCOMPLETE = _binding(
        "binds of the other members of the group did not come in time",
        "harmless once: nothing of the group is bound, and all members are tried again; "
        "repeated, see which member is not offered",
    )
    GROUP_NOT_PLANNED = _binding(
        "no GPUs are claimed for the member of a group",
        "harmless once: claims ended with their time, and the group is planned again",
    )
    GROUP_UNDECIDED = _preemption(
        "no pod is evicted for a member of a group", "wait, or end pods of lower priority yourself"
    )
    NO_VICTIMS = _preemption(
        "no pods of lower priority hold a GPU set for the pod",
        "nothing: evicting pods would not help it; `explain` shows what each node lacks",
    )
    PREEMPTION_IN_PROGRESS = _preemption(
        "waiting for preempted pods to terminate",
        "nothing; if it lasts, check why pods on the nominated node do not end",
    )
    NO_NEED = _preemption(
        "pod has a place without any eviction",
        "nothing: something became free meanwhile, and the pod is retried",
    )
    NODES_NOT_READ = _preemption(
        "nodes could not be read from the API server",
        "check the API server, and whether the role has `list` on `pods` and "
        "`poddisruptionbudgets` and `get` on `nodes`",
    )
    NODE_AFFINITY = _setup(
        "not allowed by the pod's nodeSelector or node affinity",
        "correct the pod's nodeSelector or node affinity, or label nodes for it",
        "not allowed by nodeSelector or node affinity",
    )
    NODE_UNSCHEDULABLE = _setup(
        "node is cordoned, not ready, unreachable or under pressure",
        "see `kubectl describe node`; `kubectl uncordon` it where it is only cordoned",
        "node takes no new pod",
    )

    @property
    def label(self) -> str:
        """Label value in metrics and logs."""
        return self.name.lower()

    def short(self, shape: Shape | None = None) -> str:
        """A few words, of a pod of this shape.

        >>> Reason.NIC_TAKEN.short()
        'no free set near a NIC'
        """
        link, _ = _LINKS.get(shape.policy.affinity, ("", "")) if shape else ("", "")
        return (self.row.short or self.value).format(link=link)

    def lacks(self, request: PodRequest) -> str | None:
        """What machines lack on which the pod never fits; None for other refusals."""
        if request.shape is None:
            return None
        text = self.row.lacks
        if self is Reason.AFFINITY_NEVER:
            _, text = _LINKS.get(request.shape.policy.affinity, ("", ""))
        largest = max(one.size for one in request.shape.requests)
        gpus = f"{request.size_gpus} GPU{'' if request.size_gpus == 1 else 's'}"
        return text.format(n=largest, gpus=gpus) or None


TAKEN = frozenset(one for one in Reason if one.row.outlook is Outlook.BY_EVICTION)
"""Refusals for want of a set where enough GPUs are free: pods of lower priority may hold one."""
MAY_PASS = TAKEN | {one for one in Reason if one.row.outlook is Outlook.WHEN_PODS_END}
"""Refusals that may pass when other pods end."""
