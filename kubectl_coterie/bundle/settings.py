"""Settings as a bundle holds them, each by the fields that it may have; others are left out.

Of ConfigMaps only kube-scheduler's configuration is kept, not the other files in them.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from kube.errors import Unreadable
from kubectl_coterie.check.policies import is_ours
from kubectl_coterie.installation.scheduler_configs import scheduler_configs
from topology.model import object_at, objects_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kubectl_coterie.cluster import Object, Read
    from kubectl_coterie.installation import ProgramPod

__all__ = ["parsed_configs", "policies_of", "program_of"]

_PROGRAM = (
    *("namespace", "pod", "container", "node", "phase", "is_ready", "restarts", "waits", "image"),
    *("settings", "ports", "config_maps", "host_paths"),
)
_CONFIG = ("apiVersion", "kind", "leaderElection", "parallelism", "percentageOfNodesToScore")
_PROFILE = ("schedulerName", "percentageOfNodesToScore", "plugins")
"""Without `pluginConfig`: arguments of anybody's plugins."""
_EXTENDER = (
    *("urlPrefix", "filterVerb", "preemptVerb", "prioritizeVerb", "bindVerb", "weight"),
    *("enableHTTPS", "httpTimeout", "nodeCacheCapable", "managedResources", "ignorable"),
)
_TLS = ("insecure", "serverName", "certFile", "keyFile", "caFile")
"""Without the certificates and keys that stand in the configuration itself."""


def parsed_configs(config_maps: Mapping[str, Read[Object]]) -> dict[str, object]:
    """Each configuration by where it is; of one with an unexpected shape only that it has one."""
    return {where: _config(config) for where, config in scheduler_configs(config_maps)}


def _config(config: Object) -> object:
    try:
        return _known(config)
    except Unreadable:  # the sentence might hold a secret; `check` says it
        return "of an unexpected shape"


def _known(config: Object) -> Object:
    extenders = [
        _some(one, _EXTENDER) | {"tlsConfig": _some(object_at(one, "tlsConfig"), _TLS)}
        for one in objects_at(config, "extenders")
    ]
    profiles = [_some(one, _PROFILE) for one in objects_at(config, "profiles")]
    return _some(config, _CONFIG) | {"profiles": profiles, "extenders": extenders}


def policies_of(policies: Iterable[Object]) -> list[Object]:
    """Coterie's policies or bindings: their names and what they say."""
    return [
        {"name": object_at(one, "metadata").get("name"), "spec": one.get("spec")}
        for one in policies
        if is_ours(one)
    ]


def program_of(program: ProgramPod) -> Object:
    """A program of Coterie or a kube-scheduler beside it, without its command line."""
    return {"kind": program.kind.value} | _some(asdict(program), _PROGRAM)


def _some(content: Mapping[str, object], keys: Iterable[str]) -> dict[str, object]:
    return {key: content[key] for key in keys if key in content}
