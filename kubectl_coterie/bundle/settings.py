"""Settings as a bundle holds them: the scheduler's configuration without keys, Coterie's policies.

Of ConfigMaps only kube-scheduler's configuration is kept, not the other files in them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kube.objects import object_at
from kubectl_coterie.bundle.names_in_text import split_name
from kubectl_coterie.check.policies import is_ours
from kubectl_coterie.installation.scheduler_configs import scheduler_configs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kubectl_coterie.cluster import Object, Read

__all__ = ["config_names", "parsed_configs", "policies_of"]

_SECRET = frozenset({"keyData", "token", "password"})
REMOVED = "removed"


def parsed_configs(config_maps: Mapping[str, Read[Object]]) -> dict[str, object]:
    """Each configuration by where it is; private keys in it are removed."""
    return {where: _without_keys(config) for where, config in scheduler_configs(config_maps)}


def config_names(config_maps: Mapping[str, Read[Object]]) -> Iterator[tuple[str, str]]:
    """Kind and name of each ConfigMap, of its namespace and its files (`parsed_configs`)."""
    for key, read in config_maps.items():
        yield from split_name("object", key)
        yield from (("object", file) for file in object_at(read.value or {}, "data"))


def policies_of(policies: Iterable[Object]) -> list[Object]:
    """Coterie's policies or bindings: their names and what they say."""
    return [
        {"name": object_at(one, "metadata").get("name"), "spec": one.get("spec")}
        for one in policies
        if is_ours(one)
    ]


def _without_keys(value: object) -> object:
    if isinstance(value, dict):
        return {
            key: REMOVED if key in _SECRET else _without_keys(one)
            for key, one in cast("Mapping[str, object]", value).items()
        }
    if isinstance(value, list):
        return [_without_keys(one) for one in cast("Sequence[object]", value)]
    return value
