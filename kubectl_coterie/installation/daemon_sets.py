"""DaemonSets of Coterie's node plugin: which nodes they are for, and how many they have chosen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kubectl_coterie.installation.programs import Kind, programs_of
from topology.model import list_at, object_at, objects_at, text_at, texts_at, whole_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kubectl_coterie.cluster import Object

__all__ = ["PluginDaemonSet", "plugin_daemon_sets"]

_ALL_NODES = frozenset({"kubernetes.io/os"})
"""Labels that every node of the kind has."""


@dataclass(frozen=True, slots=True)
class PluginDaemonSet:
    """A DaemonSet of the node plugin.

    A node must have all labels of `selector`, and one of `any_of` where there are some; `n_nodes`
    is how many nodes are chosen (DESIRED of kubectl).
    """

    namespace: str
    name: str
    n_nodes: int
    is_reporter: bool
    selector: Mapping[str, str] = field(default_factory=dict[str, str])
    any_of: tuple[tuple[str, str], ...] = ()

    @property
    def where(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def label_keys(self) -> frozenset[str]:
        """Keys of the labels by which it chooses nodes."""
        return frozenset(self.selector) | {key for key, _ in self.any_of}


def plugin_daemon_sets(content: Object) -> Iterator[PluginDaemonSet]:
    """The DaemonSet, if its pods run the node plugin. Raises `Unreadable`."""
    metadata = object_at(content, "metadata")
    template = object_at(object_at(content, "spec"), "template")
    spec = object_at(template, "spec")
    plugins = [one for one in programs_of(template) if one.kind is Kind.PLUGIN]
    if not plugins:
        return
    selector = texts_at(spec, "nodeSelector")
    yield PluginDaemonSet(
        namespace=text_at(metadata, "namespace"),
        name=text_at(metadata, "name"),
        n_nodes=whole_at(object_at(content, "status"), "desiredNumberScheduled"),
        is_reporter=all(one.is_reporter for one in plugins),
        selector={key: value for key, value in selector.items() if key not in _ALL_NODES},
        any_of=tuple(_any_of(spec)),
    )


def _any_of(spec: Object) -> Iterator[tuple[str, str]]:
    """Labels of the terms of its node affinity, which in the chart have one each."""
    affinity = object_at(object_at(spec, "affinity"), "nodeAffinity")
    required = object_at(affinity, "requiredDuringSchedulingIgnoredDuringExecution")
    for term in objects_at(required, "nodeSelectorTerms"):
        for one in objects_at(term, "matchExpressions"):
            if text_at(one, "operator") == "In":
                for value in list_at(one, "values"):
                    yield text_at(one, "key"), str(value)
