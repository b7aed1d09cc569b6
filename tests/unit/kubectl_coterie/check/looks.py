"""Looks at an installation in which all is well, with changes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kubectl_coterie.cluster import Read
from kubectl_coterie.installation import Kind, ProgramPod, Seen
from topology.annotations import DevicesReport, encode_devices
from topology.model import encode_topology, names
from topology.recordings import load_recording

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kubectl_coterie.check import Finding

__all__ = [
    "CONFIG_MAP",
    "EXTENDER",
    "NOW_S",
    "PLUGIN",
    "SCHEDULER",
    "audit",
    "config_map",
    "look",
    "no_right",
    "node",
    "pod",
    "policy",
    "states",
]

NOW_S = 1_800_000_000.0
CONFIG_MAP = "coterie-system/coterie-scheduler-config"
EXTENDER = ProgramPod(
    Kind.EXTENDER,
    "coterie-system",
    "coterie-scheduler-a",
    "extender",
    node="cpu-0",
    image="registry.example/coterie/extender:1.2.3",
    settings={
        "listen_port": "8888",
        "http_timeout_s": "30",
        "resources": "nvidia.com/gpu",
        "scheduler_names": "coterie-scheduler",
    },
    ports={"health": 8889, "read-api": 8890},
)
SCHEDULER = replace(
    EXTENDER,
    kind=Kind.SCHEDULER,
    container="kube-scheduler",
    settings={},
    config_maps=("coterie-scheduler-config",),
)
PLUGIN = ProgramPod(
    Kind.PLUGIN,
    "coterie-node",
    "coterie-plugin-a",
    "plugin",
    node="gpu-0",
    image="registry.example/coterie/plugin:1.2.3",
)
POLICIES = ("user-keys", "own-keys", "extender-rights", "node-keys", "agent-rights")


def no_right(resource: str) -> Read[Any]:
    """A read that was refused."""
    return Read(missing=f'{resource} is forbidden: User "jane" cannot list resource "{resource}"')


def node(name: str = "gpu-0", *, gpus: str = "8", **annotations: str | None) -> dict[str, Any]:
    """A node with GPUs, a topology and a report; `topology=None` leaves it out."""
    found: dict[str, str | None] = {
        names.TOPOLOGY: encode_topology(load_recording("dgx-1-v100")),
        names.DEVICES: encode_devices(DevicesReport(generation=1)),
    }
    for key, value in annotations.items():
        found[names.PREFIX + key] = value
    kept = {key: value for key, value in found.items() if value is not None}
    return {
        "metadata": {"name": name, "annotations": kept},
        "status": {"allocatable": {"nvidia.com/gpu": gpus}},
    }


def pod(name: str = "train", **changes: Any) -> dict[str, Any]:
    """A pod of a user, with an annotation of Coterie, for its scheduler."""
    return {
        "metadata": {
            "namespace": "ml",
            "name": name,
            "labels": changes.get("labels", {}),
            "annotations": changes.get("annotations", {"coterie.gpu/affinity": "nvlink"}),
        },
        "spec": {
            "nodeName": changes.get("node", "gpu-0"),
            "schedulerName": changes.get("scheduler", "coterie-scheduler"),
            "containers": [{"name": changes.get("container", "main")}],
        },
        "status": {"phase": changes.get("phase", "Running")},
    }


def policy(part: str, *, actions: tuple[str, ...] = ("Deny",), name: str = "") -> dict[str, Any]:
    """A policy of Coterie and its binding, in one object, which either list may hold."""
    full = name or f"coterie-{part}"
    labels = {"app.kubernetes.io/part-of": "coterie"} if name else {}
    spec = {"policyName": full, "validationActions": list(actions)}
    return {"metadata": {"name": full, "labels": labels}, "spec": spec}


def config_map(**changes: Any) -> Read[Any]:
    """kube-scheduler's configuration as the chart makes it; changes of the extender.

    `profiles` and `extenders` replace those lists.
    """
    profiles = changes.pop(
        "profiles", [{"schedulerName": "coterie-scheduler", "percentageOfNodesToScore": 100}]
    )
    extender = {
        "urlPrefix": "http://127.0.0.1:8888",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "preemptVerb": "preempt",
        "bindVerb": "bind",
        "httpTimeout": "30s",
        "nodeCacheCapable": True,
        "ignorable": False,
        "managedResources": [{"name": "nvidia.com/gpu", "ignoredByScheduler": False}],
    }
    config = {
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {
            "resourceNamespace": "coterie-system",
            "resourceName": "coterie-scheduler",
        },
        "profiles": profiles,
        "extenders": changes.pop("extenders", [extender | changes]),
    }
    data = {"scheduler-config.yaml": json.dumps(config), "other": "a: [", "more": "1"}
    return Read({"data": data})


def look(**changes: Any) -> Seen:
    """What was seen."""
    sums = {
        "version": "1.2.3",
        "is_ready": True,
        "n_nodes": 1,
        "gpus": 8,
        "pods_placed": 1,
        "pods_pending": 0,
    }
    seen = Seen(
        version="1.2.0",
        now_s=NOW_S,
        kubernetes=Read("v1.36.3"),
        nodes=Read([node()]),
        pods=Read([pod()]),
        programs=Read((EXTENDER, SCHEDULER, PLUGIN)),
        daemon_sets=Read([]),
        cluster=Read(sums | changes.pop("sums", {})),
        policies=Read([policy(part) for part in POLICIES]),
        bindings=Read([policy(part) for part in POLICIES]),
        mutating=Read([policy("scheduler-name")]),
        metrics={EXTENDER.where: Read("")},
        leases={},
        config_maps={CONFIG_MAP: config_map()},
    )
    return replace(seen, **changes)


def audit(**changes: Any) -> Seen:
    """What is seen where reporters are all that is installed."""
    found = [policy(part) for part in ("node-keys", "agent-rights")]
    reporter = replace(PLUGIN, settings={"mode": "reporter"})
    seen = look(
        programs=Read((reporter,)),
        cluster=Read(missing="no running pod serves Coterie's read API"),
        policies=Read(found),
        bindings=Read(found),
        mutating=Read([]),
        metrics={},
        config_maps={},
    )
    return replace(seen, **changes)


def states(findings: Iterable[Finding]) -> list[tuple[str, str]]:
    """Status and sentence of each."""
    return [(finding.state.value, finding.about) for finding in findings]
