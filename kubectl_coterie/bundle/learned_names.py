"""Finds the names that people chose in what was collected: of nodes, pods, labels, groups and more.

Lists of the API server do not have objects that are gone, but logs and Events do. So names are
taken from the fields that hold them, in JSON of any shape, and from running text by their form
(`names_in_text`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

from kubectl_coterie.bundle.kept_words import is_public_key, is_public_label
from kubectl_coterie.bundle.names_in_messages import names_in_group, names_in_message
from kubectl_coterie.bundle.names_in_text import names_in_path, names_in_text, split_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

__all__ = ["names_in_log", "names_in_value"]

_BY_KEY = {
    **dict.fromkeys(
        ("node", "node_name", "nodeName", "nodes", "nominatedNodeName", "reportingInstance"), "node"
    ),
    **dict.fromkeys(("namespace", "namespaces", "resourceNamespace"), "namespace"),
    **dict.fromkeys(("pod", "pods", "when_ended"), "pod"),
    **dict.fromkeys(("pod_uid", "uid"), "uid"),
    **dict.fromkeys(("schedulerName", "scheduler", "scheduler_names"), "scheduler"),
    **dict.fromkeys(("user", "username"), "user"),
    **dict.fromkeys(("image", "images"), "image"),
    **dict.fromkeys(("config_maps", "secrets", "resourceName", "lease", "object"), "object"),
    **dict.fromkeys(("coterie.gpu/group", "group"), "group"),
    **dict.fromkeys(("host", "serverName"), "host"),
    "policyName": "policy",
    "container": "container",
    "runtimeClassName": "class",
    "coterie.gpu/group-domain": "level",
    "domain": "domain",
    "zone": "zone",
}
_LABEL_KINDS = {
    "kubernetes.io/hostname": "node",
    "topology.kubernetes.io/zone": "zone",
    "topology.kubernetes.io/region": "zone",
}
_MEMBERS = {
    "containers": "container",
    "initContainers": "container",
    "managedResources": "key",
    "domains": "domain",
    "group": "group",
    "members": "pod",
}
"""What the object or the objects of a list are, by its key."""
_KINDS = {"Pod": "pod", "Node": "node", "Namespace": "namespace"}
_LEVELS = "group_levels"
_PATHS_OF_NAMES = frozenset({"domain", "group"})
_QUALIFIED = frozenset({"resource", "resources"})
_PATHS = ("File", "_ca", "_cert", "_folder", "_key", "_log", "_path", "_root", "_socket")
_WHOLE_PATHS = frozenset({"host_paths", "kubeconfig", "measurements", "simulate_faults"})
"""Fields of files; others by their ends."""


def names_in_value(value: object, kind: str = "") -> Iterator[tuple[str, str]]:
    """Kind and name of each, in a JSON value; `kind` is that of its own objects, if known."""
    if isinstance(value, dict):
        fields = cast("Mapping[str, object]", value)
        yield from _own_name(fields, kind)
        for key, one in fields.items():
            yield from _in_key(key)
            yield from _named_by(key, one)
            yield from names_in_value(one, _MEMBERS.get(key, ""))
    elif isinstance(value, list | tuple):
        for one in cast("Sequence[object]", value):
            yield from names_in_value(one, kind)
    elif isinstance(value, str):
        if value.startswith(("{", "[")):
            yield from _in_json(value, names_in_value)
        yield from names_in_text(value)
        yield from names_in_message(value)


def names_in_log(text: str) -> Iterator[tuple[str, str]]:
    """The same in a log, whose lines may be JSON, or which is JSON itself."""
    if text.startswith("{"):
        yield from _in_json(text, names_in_value)
    for line in text.splitlines():
        if line.startswith("{"):
            yield from _in_json(line, names_in_value)
        yield from names_in_text(line)


def _own_name(fields: Mapping[str, object], kind: str) -> Iterator[tuple[str, str]]:
    """The name of an object: of a kind that it says, that is known, or of one with a namespace."""
    name, said = fields.get("name"), fields.get("kind")
    if isinstance(said, str) and said in _KINDS:
        kind = _KINDS[said]
    elif not kind and isinstance(fields.get("namespace"), str):
        kind = "pod"
    if not kind:
        return
    metadata = fields.get("metadata")
    if isinstance(metadata, dict):
        name = cast("Mapping[str, object]", metadata).get("name", name)
    if isinstance(name, str):
        yield from _qualified(name) if kind == "key" else _parts(kind, name)


def _named_by(key: str, value: object) -> Iterator[tuple[str, str]]:
    """What a field holds by its key."""
    if key in {"labels", "nodeSelector"} and isinstance(value, dict):
        yield from _labels(cast("Mapping[str, object]", value))
    elif key in {"allocatable", "capacity", "limits", "requests"} and isinstance(value, dict):
        for name in cast("Mapping[str, object]", value):
            yield from _qualified(name)
    elif key == "taints" and isinstance(value, list):
        yield from _taints(cast("Sequence[object]", value))
    elif key == "arguments":
        for argument in _texts(value):
            yield from _argument(argument)
    elif key == "holderIdentity":
        yield from (("pod", text.partition("_")[0]) for text in _texts(value))
    else:
        for text in _texts(value):
            yield from _setting(key, text)


def _setting(key: str, text: str) -> Iterator[tuple[str, str]]:
    """The names in the text of a field or setting, of which a list is comma-separated."""
    kind = _BY_KEY.get(key)
    if kind is not None:
        if kind == "pod" and text.isdigit():
            return  # how many pods a node takes
        for one in text.split(",") if key == "scheduler_names" else (text,):
            yield from _split(kind, one.strip())
    elif key == _LEVELS:
        for pair in text.split(","):
            level, _, label = pair.strip().partition("=")
            yield "level", level
            yield from _qualified(label)
    elif key in _QUALIFIED:
        for one in text.split(","):
            yield from _in_key(one.strip())
    elif text.startswith("/") and (key in _WHOLE_PATHS or key.endswith(_PATHS)):
        yield from names_in_path(text)


def _split(kind: str, name: str) -> Iterator[tuple[str, str]]:
    """The names in what stands for one object; groups and domains have slashes of their own."""
    yield from _parts(kind, name) if kind in _PATHS_OF_NAMES else split_name(kind, name)


def _parts(kind: str, name: str) -> Iterator[tuple[str, str]]:
    if kind == "group":
        yield from names_in_group(name)
    elif kind == "domain":
        yield from ((kind, step) for step in name.split("/"))
    else:
        yield kind, name


def _argument(argument: str) -> Iterator[tuple[str, str]]:
    """`--name=value`, as a setting; a path wherever it stands."""
    name, _, value = argument.rpartition("=")
    if value.startswith("/"):
        yield from names_in_path(value)
    elif name:
        yield from _setting(name.lstrip("-").replace("-", "_"), value)


def _labels(labels: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for key, value in labels.items():
        yield from _qualified(key)
        if isinstance(value, str) and not is_public_label(key):
            yield _LABEL_KINDS.get(key, "label"), value


def _taints(taints: Iterable[object]) -> Iterator[tuple[str, str]]:
    for taint in taints:
        if not isinstance(taint, dict):
            continue
        fields = cast("Mapping[str, object]", taint)
        key, value = fields.get("key"), fields.get("value")
        if isinstance(key, str):
            yield from _qualified(key)
        if isinstance(value, str):
            yield "label", value


def _in_key(key: str) -> Iterator[tuple[str, str]]:
    """Keys with a domain are of labels or resources, wherever they are."""
    domain, slash, name = key.partition("/")
    if slash and "." in domain and name and "/" not in name and " " not in key:
        yield from _qualified(key)


def _qualified(name: str) -> Iterator[tuple[str, str]]:
    """The parts of a label's, taint's or resource's key, unless it is of Kubernetes or a vendor."""
    domain, slash, rest = name.partition("/")
    if not slash:
        if name and name not in _PLAIN:
            yield "key", name
    elif not is_public_key(name):
        yield "host", domain
        yield "key", rest


_PLAIN = frozenset(
    {
        *("cpu", "memory", "pods", "ephemeral-storage", "attachable-volumes", "hugepages-1Gi"),
        *("hugepages-2Mi", "hugepages-32Mi", "hugepages-64Ki", "app", "name", "k8s-app", "rdma"),
        *("CriticalAddonsOnly",),
    }
)
"""Keys without a domain that Kubernetes and NVIDIA's device plugin use."""


def _texts(value: object) -> Iterator[str]:
    found = cast("Sequence[object]", value) if isinstance(value, list | tuple) else (value,)
    yield from (one for one in found if isinstance(one, str))


def _in_json(
    text: str, names: Callable[[object], Iterator[tuple[str, str]]]
) -> Iterator[tuple[str, str]]:
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return
    yield from names(found)
