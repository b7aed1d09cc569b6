"""What the checks look at: everything that was read of a cluster, or why it was not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from topology.model import object_at

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kubectl_coterie.cluster import Object, Read
    from kubectl_coterie.cluster.read_api import Json
    from kubectl_coterie.installation.daemon_sets import PluginDaemonSet
    from kubectl_coterie.installation.programs import ProgramPod

__all__ = ["DEFAULT_RESOURCES", "DEFAULT_SCHEDULERS", "Seen"]

_EXTENDER_POLICY = "-extender-rights"
"""What the name of one of the extender's admission policies ends with."""
DEFAULT_RESOURCES = ("nvidia.com/gpu",)
DEFAULT_SCHEDULERS = ("coterie-scheduler",)
"""Defaults of the extender's settings `resources` and `scheduler_names` (docs/configuration.md)."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at a cluster.

    `pods` are all that concern Coterie: its own, NVIDIA's device plugins, and those with
    annotations of Coterie; `programs` what runs in them, which a user who may not list all pods can
    still see. `daemon_sets` are those of the node plugin. `cluster` is the extender's own sum,
    `metrics` are by pod, `leases` and `config_maps` by namespace/name.
    """

    version: str
    now_s: float
    kubernetes: Read[str]
    nodes: Read[list[Object]]
    pods: Read[list[Object]]
    programs: Read[tuple[ProgramPod, ...]]
    daemon_sets: Read[list[PluginDaemonSet]]
    cluster: Read[Json]
    policies: Read[list[Object]]
    bindings: Read[list[Object]]
    mutating: Read[list[Object]]
    metrics: Mapping[str, Read[str]]
    leases: Mapping[str, Read[Object]]
    config_maps: Mapping[str, Read[Object]]

    @property
    def extenders(self) -> Sequence[ProgramPod]:
        """The extenders that could be seen."""
        return self._of("extender")

    @property
    def plugins(self) -> Sequence[ProgramPod]:
        """The node plugins that could be seen."""
        return self._of("plugin")

    @property
    def schedulers(self) -> Sequence[ProgramPod]:
        """The schedulers that are Coterie's, or have an extender beside them."""
        return self._of("kube-scheduler")

    @property
    def is_audit(self) -> bool:
        """Whether reporters are all that is installed, so that nothing is placed by Coterie.

        Not where an extender may only be out of sight, or is installed and has no pod.
        """
        has_extender = (
            self.extenders
            or self.schedulers
            or self.cluster.value is not None
            or any(_is_of_extender(one) for one in self.policies.value or ())
        )
        if has_extender or self.pods.value is None:
            return False
        modes = [one.is_reporter for one in (*self.plugins, *(self.daemon_sets.value or ()))]
        return bool(modes) and all(modes)

    def _of(self, kind: str) -> Sequence[ProgramPod]:
        return [one for one in self.programs.value or () if one.kind.value == kind]

    @property
    def resources(self) -> tuple[str, ...]:
        """What the extender places; its default where its settings were not seen."""
        return self._listed("resources") or DEFAULT_RESOURCES

    @property
    def scheduler_names(self) -> tuple[str, ...]:
        """The schedulers whose pods it binds; its default where its settings were not seen."""
        return self._listed("scheduler_names") or DEFAULT_SCHEDULERS

    def _listed(self, setting: str) -> tuple[str, ...]:
        texts = (program.settings.get(setting, "") for program in self.extenders)
        names = (name.strip() for text in texts for name in text.split(","))
        return tuple(dict.fromkeys(name for name in names if name))


def _is_of_extender(policy: Object) -> bool:
    name = object_at(policy, "metadata").get("name")
    return isinstance(name, str) and name.endswith(_EXTENDER_POLICY)
