"""The pods that serve the read API, for each way of running the extender.

As a second scheduler and as a Service they are Coterie's own (`app.kubernetes.io/part-of=coterie`)
in the namespace of the installation; beside kubeadm's scheduler they are pods of `kube-system` with
`component=kube-scheduler`. In each the port has the name `read-api`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote as url_quote

from kube.client import Request
from kube.errors import KubeError
from kubectl_coterie.errors import CliError
from topology.model import as_object, list_at, object_at, objects_at, parse_object, text_at

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kube.client import Requester

__all__ = ["NAMESPACES", "ExtenderPod", "NoExtender", "find_extender_pods"]

NAMESPACES = ("coterie-system", "kube-system")
"""Where the extender is looked for: the namespace of the documentation, and that
of kubeadm's scheduler."""
PORT_NAME = "read-api"
_LABELS = ("app.kubernetes.io/part-of=coterie", "component=kube-scheduler")
_FORBIDDEN = 403


class NoExtender(CliError):
    """No running pod is an extender, wherever the user may look."""


@dataclass(frozen=True, slots=True)
class ExtenderPod:
    """A pod that serves the read API; `port` None: found by name, the default is taken."""

    namespace: str
    name: str
    port: int
    is_ready: bool = True


async def find_extender_pods(
    requester: Requester, namespace: str | None, timeout_s: float
) -> list[ExtenderPod]:
    """Find them, those that are Ready first: in `namespace`, else in `NAMESPACES`, else anywhere.

    Raises `NoExtender` where there is none at all, `CliError` where there is none in `namespace` or
    they may not be listed, and `KubeError`.
    """
    refused: list[KubeError] = []
    for place in NAMESPACES if namespace is None else (namespace,):
        path = f"/api/v1/namespaces/{url_quote(place, safe='')}/pods"
        try:
            if found := await _serving(requester, path, timeout_s):
                return found
        except KubeError as error:
            if error.status != _FORBIDDEN:
                raise
            refused.append(error)
    if namespace is None:
        try:
            if found := await _serving(requester, "/api/v1/pods", timeout_s):
                return found
        except KubeError as error:
            if error.status != _FORBIDDEN:
                raise
    raise _not_found(namespace, refused)


async def _serving(requester: Requester, path: str, timeout_s: float) -> list[ExtenderPod]:
    found: list[ExtenderPod] = []
    for label in _LABELS:
        query = {"labelSelector": label}
        body = await requester.request(Request("GET", path, timeout_s, query=query))
        for content in objects_at(parse_object(body), "items"):
            pod = _read(content)
            if pod is not None:
                found.append(pod)
    return sorted(found, key=lambda pod: (not pod.is_ready, pod.namespace, pod.name))


def _read(content: Mapping[str, object]) -> ExtenderPod | None:
    metadata, status = object_at(content, "metadata"), object_at(content, "status")
    if text_at(status, "phase") != "Running" or metadata.get("deletionTimestamp"):
        return None
    spec = object_at(content, "spec")
    containers = [*objects_at(spec, "containers"), *objects_at(spec, "initContainers")]
    for container in containers:
        for port in list_at(container, "ports"):
            one = as_object(port, "port")
            number = one.get("containerPort")
            if one.get("name") == PORT_NAME and isinstance(number, int):
                return ExtenderPod(
                    text_at(metadata, "namespace"),
                    text_at(metadata, "name"),
                    number,
                    _is_ready(status, text_at(container, "name")),
                )
    return None


def _is_ready(status: Mapping[str, object], container: str) -> bool:
    statuses = [
        *objects_at(status, "containerStatuses"),
        *objects_at(status, "initContainerStatuses"),
    ]
    return any(one.get("name") == container and one.get("ready") is True for one in statuses)


def _not_found(namespace: str | None, refused: Sequence[KubeError]) -> CliError:
    where = " and ".join(NAMESPACES) if namespace is None else namespace
    if refused:
        return CliError(
            f"cannot look for the extender: {refused[0].detail}; an administrator can bind you to "
            "the Role coterie-reader, or name its pod with --extender-pod NAMESPACE/NAME"
        )
    msg = (
        f"no running pod in {where} serves Coterie's read API (a container port named "
        f"{PORT_NAME}); is the extender installed? Name its namespace with --extender-namespace, "
        "or its address with --extender-url"
    )
    return NoExtender(msg) if namespace is None else CliError(msg)
