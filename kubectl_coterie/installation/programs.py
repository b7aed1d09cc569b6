"""Coterie's programs on a cluster: extenders, node plugins and schedulers, read from their pods.

Settings are those that the pod's spec shows, as environment or flags; of a settings file in the
container nothing is known here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from topology.model import list_at, object_at, objects_at, text_at, texts_at, whole_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kubectl_coterie.cluster import Object

__all__ = ["READ_PORT", "Kind", "ProgramPod", "programs_of"]

READ_PORT = "read-api"
"""Name of the extender's port in the chart."""
_EXTENDER, _PLUGIN = "COTERIE_EXTENDER_", "COTERIE_PLUGIN_"
_NO_STATUS: Object = {}
_PART_OF = "app.kubernetes.io/part-of"


class Kind(Enum):
    """Which program a container runs."""

    EXTENDER = "extender"
    PLUGIN = "plugin"
    SCHEDULER = "kube-scheduler"


@dataclass(frozen=True, slots=True)
class ProgramPod:
    """A container that runs one of them, in its pod.

    `settings` are by name in lower case, without prefix; `waits` is why it does not run.
    `config_maps` are those that the pod mounts, `host_paths` the host's files and folders.
    """

    kind: Kind
    namespace: str
    pod: str
    container: str
    node: str = ""
    phase: str = "Running"
    is_ready: bool = True
    restarts: int = 0
    waits: str = ""
    image: str = ""
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    arguments: tuple[str, ...] = ()
    ports: Mapping[str, int] = field(default_factory=dict[str, int])
    config_maps: tuple[str, ...] = ()
    host_paths: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()

    @property
    def is_reporter(self) -> bool:
        """Whether a node plugin only reports."""
        return self.settings.get("mode") == "reporter"

    @property
    def where(self) -> str:
        """`namespace/pod`."""
        return f"{self.namespace}/{self.pod}"


def programs_of(pod: Object) -> Iterator[ProgramPod]:
    """The programs of a pod; none where it is not Coterie's, nor a scheduler beside an extender.

    Raises `Unreadable`.
    """
    spec, status = object_at(pod, "spec"), object_at(pod, "status")
    containers = [*objects_at(spec, "initContainers"), *objects_at(spec, "containers")]
    kinds = [_kind(container, pod) for container in containers]
    is_ours = Kind.EXTENDER in kinds or Kind.PLUGIN in kinds or _is_part(pod)
    for container, kind in zip(containers, kinds, strict=True):
        if kind is not None and is_ours:
            yield _program(kind, container, pod, status)


def _is_part(pod: Object) -> bool:
    labels = texts_at(object_at(pod, "metadata"), "labels")
    return labels.get(_PART_OF) == "coterie"


def _kind(container: Object, pod: Object) -> Kind | None:
    names = {text_at(one, "name") for one in objects_at(container, "env")}
    ports = {text_at(one, "name") for one in objects_at(container, "ports")}
    name = text_at(container, "name")
    if READ_PORT in ports or any(one.startswith(_EXTENDER) for one in names):
        return Kind.EXTENDER
    command = [str(one) for one in list_at(container, "command")]
    if name == "kube-scheduler" or (command and command[0].endswith("kube-scheduler")):
        return Kind.SCHEDULER
    is_plugin = name == "plugin" or any(one.startswith(_PLUGIN) for one in names)
    return Kind.PLUGIN if is_plugin and _is_part(pod) else None


def _program(kind: Kind, container: Object, pod: Object, status: Object) -> ProgramPod:
    metadata, spec = object_at(pod, "metadata"), object_at(pod, "spec")
    name = text_at(container, "name")
    states = [
        *objects_at(status, "initContainerStatuses"),
        *objects_at(status, "containerStatuses"),
    ]
    state: Object = next((one for one in states if one.get("name") == name), _NO_STATUS)
    arguments = tuple(str(one) for one in list_at(container, "args"))
    volumes = list(objects_at(spec, "volumes"))
    return ProgramPod(
        kind=kind,
        namespace=text_at(metadata, "namespace"),
        pod=text_at(metadata, "name"),
        container=name,
        node=text_at(spec, "nodeName"),
        phase=text_at(status, "phase"),
        is_ready=state.get("ready") is True and not metadata.get("deletionTimestamp"),
        restarts=whole_at(state, "restartCount"),
        waits=_waits(state),
        image=text_at(container, "image"),
        settings={**_environment(container, kind), **_flags(arguments)},
        arguments=arguments,
        ports={
            text_at(port, "name"): whole_at(port, "containerPort")
            for port in objects_at(container, "ports")
        },
        config_maps=_named(volumes, "configMap", "name"),
        host_paths=_named(volumes, "hostPath", "path"),
        secrets=_named(volumes, "secret", "secretName"),
    )


def _named(volumes: Sequence[Object], kind: str, key: str) -> tuple[str, ...]:
    found = (text_at(object_at(volume, kind), key) for volume in volumes)
    return tuple(name for name in found if name)


def _waits(state: Object) -> str:
    waiting = object_at(object_at(state, "state"), "waiting")
    reason, message = text_at(waiting, "reason"), text_at(waiting, "message")
    return f"{reason}: {message}" if reason and message else reason or message


def _environment(container: Object, kind: Kind) -> dict[str, str]:
    prefix = _PLUGIN if kind is Kind.PLUGIN else _EXTENDER
    return {
        text_at(one, "name").removeprefix(prefix).lower(): text_at(one, "value")
        for one in objects_at(container, "env")
        if text_at(one, "name").startswith(prefix)
    }


def _flags(arguments: Sequence[str]) -> dict[str, str]:
    """`--http-timeout-s=5` and `--http-timeout-s 5`, above the environment."""
    found: dict[str, str] = {}
    for k, argument in enumerate(arguments):
        if not argument.startswith("--"):
            continue
        name, is_one, value = argument[2:].partition("=")
        following = arguments[k + 1] if k + 1 < len(arguments) else "--"
        if not is_one and following.startswith("--"):
            continue
        found[name.replace("-", "_")] = value if is_one else following
    return found
