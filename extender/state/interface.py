"""What the verbs need of a cluster, wherever its state comes from.

`extender.state.cluster_state` is fed by watches, `extender.embedded.state` is its own API server.
The verbs never learn which one they have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from extender.protocol import PodRequest
    from extender.snapshot import ClusterSnapshot
    from extender.state.device_states import DeviceRow, DeviceState
    from topology.annotations import Plan

__all__ = ["BoundPod", "Cluster", "Refused"]


@dataclass(frozen=True, slots=True)
class Refused:
    """A plan's devices cannot be assumed; `detail` is a sentence for people."""

    detail: str


@dataclass(frozen=True, slots=True)
class BoundPod:
    """A pod that has a node; `plan_text` is its plan annotation, if it has one."""

    uid: str
    namespace: str
    name: str
    node: str
    plan_text: str | None

    def as_json(self) -> dict[str, object]:
        """The pod's record in the shape of API JSON."""
        annotations = {} if self.plan_text is None else {names.PLAN: self.plan_text}
        return {
            "metadata": {
                "namespace": self.namespace,
                "name": self.name,
                "uid": self.uid,
                "annotations": annotations,
            },
            "spec": {"nodeName": self.node},
        }


class Cluster(Protocol):
    """The state that the engine decides from. One writer, on one event loop."""

    @property
    def snapshot(self) -> ClusterSnapshot:
        """The cluster now; the same object until something changes."""
        ...

    @property
    def n_pods(self) -> int:
        """Number of pods known to have a node."""
        ...

    @property
    def n_owners(self) -> int:
        """Number of pods that have devices or a claim."""
        ...

    def devices(self, name: str) -> tuple[DeviceRow, ...]:
        """Id, state and owner of each device of a node, in device order; () if it is unknown."""
        ...

    def snapshot_for(self, request: PodRequest) -> ClusterSnapshot:
        """The cluster as this pod may use it.

        Counted as free beside what is free: what the pod itself has claimed or assumed, and what
        pods of lower priority have claimed (not what they have assumed). The same object as
        `snapshot` where that changes nothing.
        """
        ...

    def bound(self, uid: str) -> BoundPod | None:
        """The pod with its node, if the API server accepted or showed it; None otherwise.

        A pod that is only assumed is not bound.
        """
        ...

    def assume(self, request: PodRequest, plan: Plan, *, deadline_s: float) -> Refused | None:
        """Keep the plan's devices for a binding in flight, or say why not and change nothing.

        Claims that `snapshot_for` counted as free are dropped for it. Without `confirm` the
        assumption ends at `deadline_s`.
        """
        ...

    def renew(self, uid: str, *, deadline_s: float) -> None:
        """The pod's assumption ends at `deadline_s` at the earliest. Nothing if not assumed."""
        ...

    def confirm(self, uid: str) -> None:
        """The API server accepted the binding of an assumed pod; from now on it is `bound`.

        A live cluster keeps it until the watch shows the pod, or, where it never does, until the
        watch is fresh and the deadline has passed: a pod may be bound and deleted between two
        lists. Nothing for a pod that lost its assumption since.
        """
        ...

    def forget(self, uid: str) -> None:
        """The binding certainly came to nothing: its devices are free. Nothing if not assumed."""
        ...

    def counts(self) -> Mapping[DeviceState, int]:
        """Number of devices in each state."""
        ...

    def as_json(self) -> dict[str, object]:
        """Everything, for people."""
        ...
