"""Effects: what the live state wants read or reported, as values.

Which pods to read in full, and what to report to users and operators. The state itself does no I/O
(`extender.state.cluster_state`); the watch and the event recorder take these and act.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from topology.annotations import ContainerPlan, MissingDevices

__all__ = ["Agreement", "Effect", "Mismatch", "Missing", "NodeProblem", "PlanConflict", "Probe"]


@dataclass(frozen=True, slots=True)
class Probe:
    """Read this pod in full and hand it to `PodTracker.read`; if it is not there, to `lose`."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The kubelet gave a pod other devices than planned.

    `text` is the annotation `coterie.gpu/allocated` that the pod should carry; `containers` is what
    it says. Once for each text, and not at all where the pod carries it already.
    """

    namespace: str
    name: str
    uid: str
    node: str
    planned: tuple[ContainerPlan, ...]
    containers: tuple[ContainerPlan, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Agreement:
    """A pod that carries `coterie.gpu/allocated` has the devices of its plan again."""

    namespace: str
    name: str
    uid: str

    @property
    def text(self) -> None:
        """The annotation that the pod should carry: none."""


@dataclass(frozen=True, slots=True)
class PlanConflict:
    """A pod's plan names devices that `owners` (namespace/name) have: two live plans overlap.

    The pod keeps the rest of its plan and gets these when they are free. Once for each set.
    """

    namespace: str
    name: str
    uid: str
    node: str
    ids: tuple[str, ...]
    owners: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Missing:
    """These containers of a pod run without the devices they request. Once for each set."""

    namespace: str
    name: str
    uid: str
    node: str
    missing: tuple[MissingDevices, ...]


@dataclass(frozen=True, slots=True)
class NodeProblem:
    """A node's own annotations or labels cannot be used; `detail` is a sentence."""

    node: str
    detail: str


Effect: TypeAlias = "Probe | Mismatch | Agreement | PlanConflict | Missing | NodeProblem"
