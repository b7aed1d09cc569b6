"""kube-scheduler's configurations in ConfigMaps, and the Leases that they name."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kube.documents import read_yaml
from kube.errors import DocumentError
from topology.model import object_at, text_at, texts_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kubectl_coterie.cluster import Object, Read

__all__ = ["leader_leases", "scheduler_configs"]

_KIND = "KubeSchedulerConfiguration"


def scheduler_configs(config_maps: Mapping[str, Read[Object]]) -> Iterator[tuple[str, Object]]:
    """Each configuration, and where it is; what is no such file is passed over.

    Raises `Unreadable`.
    """
    for key, read in config_maps.items():
        data: Mapping[str, str] = {} if read.value is None else texts_at(read.value, "data")
        for file, text in data.items():
            try:
                content = read_yaml(text)
            except DocumentError:
                continue
            if isinstance(content, dict):
                config = cast("dict[str, object]", content)
                if config.get("kind") == _KIND:
                    yield f"ConfigMap {key} ({file})", config


def leader_leases(config_maps: Mapping[str, Read[Object]]) -> Iterator[str]:
    """The namespace/name of the Lease by which the schedulers of each elect a leader.

    Raises `Unreadable`.
    """
    for _, config in scheduler_configs(config_maps):
        election = object_at(config, "leaderElection")
        namespace = text_at(election, "resourceNamespace")
        name = text_at(election, "resourceName")
        if namespace and name and election.get("leaderElect") is not False:
            yield f"{namespace}/{name}"
