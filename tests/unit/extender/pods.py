"""Pods and requests as kube-scheduler writes them, for the tests of this folder."""

from __future__ import annotations

import json
from typing import Any

GPU = "nvidia.com/gpu"


def container(name: str, n_gpus: Any = None, **more: Any) -> dict[str, Any]:
    """A container that requests GPUs, or none."""
    if n_gpus is None:
        return {"name": name, **more}
    wish = {GPU: n_gpus}
    return {"name": name, "resources": {"limits": wish, "requests": wish}, **more}


def pod(n_gpus: Any = None, *, uid: str = "u1", **annotations: str) -> dict[str, Any]:
    """A pod with one container; annotations by their short names."""
    return {
        "metadata": {
            "name": f"pod-{uid}",
            "namespace": "default",
            "uid": uid,
            "annotations": {
                f"coterie.gpu/{key.replace('_', '-')}": value for key, value in annotations.items()
            },
            "labels": {"app": "train"},
            "resourceVersion": "17",
        },
        "spec": {"containers": [container("main", n_gpus)], "schedulerName": "gpu"},
        "status": {"phase": "Pending"},
    }


def args(pod: dict[str, Any], names: list[str] | None) -> bytes:
    """An ExtenderArgs body, spelled as Go spells it."""
    content = {"Pod": pod, "Nodes": None, "NodeNames": names}
    return json.dumps(content, separators=(",", ":")).encode()


def binding(uid: str, node: str, **more: str) -> bytes:
    """An ExtenderBindingArgs body for a pod of `pod`."""
    content = {"PodName": f"pod-{uid}", "PodNamespace": "default", "PodUID": uid, "Node": node}
    return json.dumps(content | more).encode()
