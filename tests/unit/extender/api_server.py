"""The part of an API server that a bind meets, in memory: pods by name, and Bindings.

As `pkg/registry/core/pod/storage/storage.go` of 1.36 has it (BindingREST): preconditions on uid and
resourceVersion, then deletion, an assigned node and scheduling gates, all of them a 409.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from extender.bind import WriteResult, Written
from tests.unit.extender.pods import pod as make_pod

if TYPE_CHECKING:
    from extender.bind import ReadPod, WriteBinding


@dataclass
class FakePod:
    """One pod. `content` is what it was created with."""

    content: dict[str, Any]
    version: int = 17
    node: str | None = None
    is_deleting: bool = False
    is_gated: bool = False
    plan: dict[str, str] = field(default_factory=dict)

    @property
    def uid(self) -> str:
        """Its uid."""
        uid: str = self.content["metadata"]["uid"]
        return uid

    def as_json(self) -> bytes:
        """The pod as GET shows it."""
        meta = self.content["metadata"]
        meta = meta | {
            "resourceVersion": str(self.version),
            "annotations": meta["annotations"] | self.plan,
        }
        if self.is_deleting:
            meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        spec = dict(self.content["spec"])
        if self.node is not None:
            spec["nodeName"] = self.node
        if self.is_gated:
            spec["schedulingGates"] = [{"name": "example.org/wait"}]
        return json.dumps(
            {"kind": "Pod", "apiVersion": "v1"} | self.content | {"metadata": meta, "spec": spec}
        ).encode()


class FakeApiServer:
    """Pods by full name."""

    def __init__(self) -> None:
        self.pods: dict[str, FakePod] = {}

    def create(self, n_gpus: Any = 2, *, uid: str = "u1", name: str = "", **more: str) -> FakePod:
        """A pod as `tests.unit.extender.pods` makes it."""
        content = make_pod(n_gpus, uid=uid, **more)
        if name:
            content["metadata"]["name"] = name
        pod = FakePod(content)
        self.pods[f"default/{content['metadata']['name']}"] = pod
        return pod

    def read(self, step: ReadPod) -> bytes | None:
        """GET."""
        pod = self.pods.get(f"{step.namespace}/{step.name}")
        return None if pod is None else pod.as_json()

    def write(self, step: WriteBinding) -> Written:
        """POST a Binding."""
        pod = self.pods.get(f"{step.namespace}/{step.name}")
        if pod is None:
            return Written(WriteResult.GONE, "not found")
        is_meant = pod.uid == step.uid and step.resource_version in {"", str(pod.version)}
        if not is_meant or pod.is_deleting or pod.is_gated or pod.node is not None:
            return Written(WriteResult.CONFLICT, "the object has been modified")
        pod.node = step.node
        pod.plan = dict(step.annotations)
        pod.version += 1
        return Written(WriteResult.ACCEPTED)
