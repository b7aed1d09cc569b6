"""Kubernetes objects as the values that both programs need of them.

Reads JSON; makes no request.
"""

from kube.objects.containers import (
    ContainerSpec,
    devices_at,
    devices_of,
    init_role,
    quantities_at,
    read_containers,
)
from kube.objects.leases import Lease, read_lease
from kube.objects.manifests import TEMPLATES, kind_of, pinned_reason, pod_count, pod_of
from kube.objects.objects import (
    ContainerDevices,
    NodeFacts,
    ObjectKey,
    Pod,
    PodFacts,
    PodObject,
    pod_facts_reader,
    pod_fields,
    read_allocatable,
    read_key,
    read_node,
    read_pod,
)
from kube.objects.one_by_one import one_by_one
from kube.objects.pod_templates import KINDS, PodTemplate, pods_of
from kube.objects.policies import DisruptionBudget, read_budget
from kube.objects.quantity import parse_whole

__all__ = [
    "KINDS",
    "TEMPLATES",
    "ContainerDevices",
    "ContainerSpec",
    "DisruptionBudget",
    "Lease",
    "NodeFacts",
    "ObjectKey",
    "Pod",
    "PodFacts",
    "PodObject",
    "PodTemplate",
    "devices_at",
    "devices_of",
    "init_role",
    "kind_of",
    "one_by_one",
    "parse_whole",
    "pinned_reason",
    "pod_count",
    "pod_facts_reader",
    "pod_fields",
    "pod_of",
    "pods_of",
    "quantities_at",
    "read_allocatable",
    "read_budget",
    "read_containers",
    "read_key",
    "read_lease",
    "read_node",
    "read_pod",
]
