"""Requests to the API server other than the watches.

Reads single objects and lists, and writes. Values in, values out; every refusal is a `KubeError`.
Each method is one request (lists: one per page); nothing is retried here, since only the caller
knows whether that is safe. RBAC in `deploy/` is counted from these methods and from
`kube.watch.watches`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar
from urllib.parse import quote

from kube.client.pages import Page
from kube.client.transport import MERGE_PATCH, METADATA, Request
from kube.errors import KubeError, Malformed, NotFound, Unreadable, cut
from kube.objects import DisruptionBudget, PodObject, read_allocatable, read_budget, read_pod
from topology.model import object_at, parse_object, text_at, texts_at

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from fractions import Fraction

    from kube.client.transport import Requester
    from kube.objects import ObjectKey

__all__ = ["MAX_EVENT_MESSAGE", "ApiServer", "Binding", "ObjectEvent", "PodReader"]

T = TypeVar("T")

MAX_EVENT_MESSAGE = 1024
"""(pkg/apis/core/validation/events.go, NoteLengthLimit.)"""
_MAX_NAME = 253
"""(apimachinery, pkg/util/validation, DNS1123SubdomainMaxLength.)"""
_PAGE_SIZE = 250
_OTHER_UID = "metadata.uid"


@dataclass(frozen=True, slots=True)
class Binding:
    """A pod, the node it goes to, and the annotations that it gets with it.

    `pod.uid` and `resource_version` are preconditions; an empty one is none.
    """

    pod: ObjectKey
    resource_version: str
    node: str
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ObjectEvent:
    """An Event about a pod, or about a node where `about` has no namespace.

    `is_warning`: type Warning, else Normal. `component` and `instance` say who reports; `reason` is
    one word in CamelCase, `message` a sentence for people, cut to `MAX_EVENT_MESSAGE`. `key`, of
    lower-case letters and digits, distinguishes the Events about one object; by default the API
    server draws one.
    """

    about: ObjectKey
    is_warning: bool
    reason: str
    message: str
    at: datetime
    component: str
    instance: str
    key: str = ""


class PodReader(Protocol):
    """An `ApiServer`, for those who only read pods."""

    async def get_pod(self, namespace: str, name: str) -> PodObject | None:
        """Read a pod; None where it is not there. Raises `KubeError`."""
        ...


class ApiServer:
    """The API server. `timeout_s` bounds every request that names no bound of its own."""

    def __init__(self, requester: Requester, *, timeout_s: float = 10.0) -> None:
        self._requester = requester
        self._timeout_s = timeout_s

    async def bind(self, binding: Binding, *, timeout_s: float | None = None) -> None:
        """Bind a pod to a node and write its annotations, in one transaction.

        Raises `Conflict` for a pod that is bound, being deleted or gated, or not as the
        preconditions say: read the pod to find out which.
        """
        pod = binding.pod
        meta: dict[str, object] = {
            "namespace": pod.namespace,
            "name": pod.name,
            "annotations": dict(binding.annotations),
        }
        if pod.uid:
            meta["uid"] = pod.uid
        if binding.resource_version:
            meta["resourceVersion"] = binding.resource_version
        await self._send(
            "POST",
            f"{_pod_path(pod.namespace, pod.name)}/binding",
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": meta,
                "target": {"apiVersion": "v1", "kind": "Node", "name": binding.node},
            },
            timeout_s=timeout_s,
        )

    async def get_pod(
        self, namespace: str, name: str, *, timeout_s: float | None = None
    ) -> PodObject | None:
        """Read a pod; None where there is none of that name."""
        return await self._get(_pod_path(namespace, name), read_pod, timeout_s=timeout_s)

    async def get_allocatable(self, name: str) -> Mapping[str, Fraction] | None:
        """Read what a node can give to pods, of every resource; None if it is not there."""
        return await self._get(_node_path(name), read_allocatable)

    async def list_pods_on(self, node: str) -> tuple[PodObject, ...]:
        """Read all pods of a node, ended ones too."""
        return await self._list(
            "/api/v1/pods", read_pod, {"fieldSelector": f"spec.nodeName={node}"}
        )

    async def list_pdbs(self) -> tuple[DisruptionBudget, ...]:
        """Read all pod disruption budgets; one that cannot be read covers no pod."""
        return await self._list("/apis/policy/v1/poddisruptionbudgets", read_budget, {})

    async def annotate_pod(
        self, namespace: str, name: str, uid: str, annotations: Mapping[str, str | None]
    ) -> str:
        """Set annotations of a pod (None: remove), return its new resourceVersion.

        Raises `NotFound` where the pod is gone, also if another has taken its name.
        """
        meta = {"uid": uid, "annotations": dict(annotations)}
        try:
            body = await self._patch(_pod_path(namespace, name), meta)
        except KubeError as error:
            if _OTHER_UID in error.fields:
                # A patch has no precondition; another uid is an attempt to change the pod's.
                raise NotFound(error.status, error.reason, error.detail) from error
            raise
        return _read(body, _version)

    async def annotate_node(
        self, name: str, annotations: Mapping[str, str | None], *, timeout_s: float | None = None
    ) -> Mapping[str, str]:
        """Set annotations of a node (None: remove), return all that it has afterwards.

        Where nothing changes nothing is stored, and no watch sees it: with no annotations at all
        this reads those of the node, for callers that may patch it and not get it. Raises
        `NotFound`.
        """
        meta = {"annotations": dict(annotations)}
        return _read(await self._patch(_node_path(name), meta, timeout_s=timeout_s), _annotations)

    async def create_event(self, event: ObjectEvent) -> None:
        """Write an Event, which `kubectl describe` shows.

        Raises `Conflict` where there is one of that key about an object of that name.
        """
        about = event.about
        # What belongs to no namespace has its Events in this one (client-go, tools/record).
        namespace = about.namespace or "default"
        at = event.at.strftime("%Y-%m-%dT%H:%M:%SZ")
        message = event.message
        if len(message) > MAX_EVENT_MESSAGE:
            message = message[: MAX_EVENT_MESSAGE - 1] + "…"
        await self._send(
            "POST",
            f"/api/v1/namespaces/{quote(namespace, safe='')}/events",
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"namespace": namespace, **_event_name(about.name, event.key)},
                "involvedObject": {
                    "apiVersion": "v1",
                    "kind": "Pod" if about.namespace else "Node",
                    "namespace": about.namespace,
                    "name": about.name,
                    "uid": about.uid,
                },
                "type": "Warning" if event.is_warning else "Normal",
                "reason": event.reason,
                "message": message,
                "firstTimestamp": at,
                "lastTimestamp": at,
                "count": 1,
                "source": {"component": event.component},
                "reportingComponent": event.component,
                "reportingInstance": event.instance,
            },
        )

    async def _send(
        self,
        method: str,
        path: str,
        body: Mapping[str, object],
        *,
        timeout_s: float | None = None,
    ) -> bytes:
        bound_s = self._timeout_s if timeout_s is None else timeout_s
        return await self._requester.request(Request(method, path, bound_s, body=body))

    async def _patch(
        self, path: str, meta: Mapping[str, object], *, timeout_s: float | None = None
    ) -> bytes:
        request = Request(
            "PATCH",
            path,
            self._timeout_s if timeout_s is None else timeout_s,
            body={"metadata": meta},
            accept=METADATA,
            content_type=MERGE_PATCH,
        )
        return await self._requester.request(request)

    async def _get(
        self,
        path: str,
        read: Callable[[Mapping[str, object]], T],
        *,
        timeout_s: float | None = None,
    ) -> T | None:
        bound_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            body = await self._requester.request(Request("GET", path, bound_s))
        except NotFound:
            return None
        return _read(body, read)

    async def _list(
        self, path: str, read: Callable[[Mapping[str, object]], T], query: Mapping[str, str]
    ) -> tuple[T, ...]:
        found: list[T] = []
        page_query = {**query, "limit": str(_PAGE_SIZE)}
        while True:
            request = Request("GET", path, self._timeout_s, query=page_query)
            page = Page(await self._requester.request(request))
            found.extend(_checked(read, content) for content in page)
            if not page.continue_token:
                return tuple(found)
            page_query = {**page_query, "continue": page.continue_token}


def _event_name(about: str, key: str) -> dict[str, str]:
    """As client-go names Events, after their object; within the length of a DNS subdomain."""
    if not key:
        return {"generateName": f"{about}."}
    return {"name": f"{about[: _MAX_NAME - len(key) - 1].rstrip('-.')}.{key}"}


def _version(content: Mapping[str, object]) -> str:
    return text_at(object_at(content, "metadata"), "resourceVersion")


def _annotations(content: Mapping[str, object]) -> Mapping[str, str]:
    return texts_at(object_at(content, "metadata"), "annotations")


def _node_path(name: str) -> str:
    return f"/api/v1/nodes/{quote(name, safe='')}"


def _pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"


def _read(body: bytes, read: Callable[[Mapping[str, object]], T]) -> T:
    try:
        content = parse_object(body)
    except Unreadable as error:
        raise Malformed(0, "Malformed", cut(str(error))) from error
    return _checked(read, content)


def _checked(read: Callable[[Mapping[str, object]], T], content: Mapping[str, object]) -> T:
    try:
        return read(content)
    except Unreadable as error:
        raise Malformed(0, "Unreadable", cut(str(error))) from error
