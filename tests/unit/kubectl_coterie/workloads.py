"""Workloads of Coterie as `kubectl coterie` finds them in a cluster, with what it reads of them.

tests/cluster/of_kubectl has it read the chart's own.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

__all__ = ["EXTENDER", "SCHEDULER", "daemon_set", "scheduler_pod"]

EXTENDER: dict[str, Any] = {
    "name": "extender",
    "image": "set-your-registry.invalid/coterie/extender",
    "args": ["serve"],
    "env": [
        {"name": "COTERIE_EXTENDER_LISTEN_ADDRESS", "value": "127.0.0.1"},
        {"name": "COTERIE_EXTENDER_LISTEN_PORT", "value": "8888"},
        {"name": "COTERIE_EXTENDER_HEALTH_PORT", "value": "8889"},
        {"name": "COTERIE_EXTENDER_READ_PORT", "value": "8890"},
        {"name": "COTERIE_EXTENDER_HTTP_TIMEOUT_S", "value": "30"},
        {"name": "COTERIE_EXTENDER_RESOURCES", "value": "nvidia.com/gpu"},
        {"name": "COTERIE_EXTENDER_SCHEDULER_NAMES", "value": "coterie-scheduler"},
    ],
    "ports": [
        {"name": "health", "containerPort": 8889},
        {"name": "read-api", "containerPort": 8890},
    ],
}
SCHEDULER: dict[str, Any] = {
    "name": "kube-scheduler",
    "image": "registry.k8s.io/kube-scheduler:v1.36.3",
    "command": ["kube-scheduler", "--config=/etc/coterie/scheduler/scheduler-config.yaml"],
    "ports": [{"name": "scheduler", "containerPort": 10259}],
}


def scheduler_pod(*containers: dict[str, Any]) -> dict[str, Any]:
    """The spec of a pod with a scheduler's configuration; by default the extender is beside it."""
    return {
        "serviceAccountName": "coterie-scheduler",
        "containers": [deepcopy(one) for one in containers or (SCHEDULER, EXTENDER)],
        "volumes": [
            {"name": "scheduler-config", "configMap": {"name": "coterie-scheduler-config"}},
            {"name": "extender-account", "secret": {"secretName": "coterie-extender-token"}},
        ],
    }


def daemon_set(*arguments: str) -> dict[str, Any]:
    """The node plugin's, with the labels by which it finds nodes; it serves unless it is told."""
    container = {
        "name": "plugin",
        "image": "set-your-registry.invalid/coterie/plugin",
        "args": list(arguments or ("run",)),
        "env": [
            {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "COTERIE_PLUGIN_SYSFS_ROOT", "value": "/host/sys"},
        ],
        "ports": [{"name": "health", "containerPort": 8890}],
    }
    labels = ("nvidia.com/gpu.present", "coterie.gpu/agent")
    terms = [
        {"matchExpressions": [{"key": label, "operator": "In", "values": ["true"]}]}
        for label in labels
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    spec = {
        "serviceAccountName": "coterie-plugin",
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "affinity": {"nodeAffinity": required},
        "containers": [container],
        "volumes": [{"name": "sysfs", "hostPath": {"path": "/sys"}}],
    }
    metadata = {"labels": {"app.kubernetes.io/part-of": "coterie"}}
    return {
        "metadata": {"name": "coterie-plugin", "namespace": "coterie-node"},
        "spec": {"template": {"metadata": metadata, "spec": spec}},
    }
