"""Which right a user lacks, in a sentence (authorization.k8s.io/v1 SelfSubjectAccessReview)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kube.client import Request
from kube.errors import KubeError
from topology.model import object_at, parse_object

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kube.client import Requester

__all__ = ["may", "missing_forward_rights"]


async def may(  # noqa: PLR0913 - the attributes of a request
    requester: Requester,
    verb: str,
    resource: str,
    *,
    timeout_s: float,
    namespace: str = "",
    group: str = "",
    subresource: str = "",
) -> bool:
    """Whether the user may do it. Raises `KubeError`."""
    attributes = {
        "verb": verb,
        "group": group,
        "resource": resource,
        "subresource": subresource,
        "namespace": namespace,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    answer = await requester.request(Request("POST", path, timeout_s, body=body))
    return object_at(parse_object(answer), "status").get("allowed") is True


async def missing_forward_rights(
    requester: Requester, namespace: str, timeout_s: float
) -> Sequence[str]:
    """The verbs on `pods/portforward` that the user lacks there; none where it cannot be read.

    A WebSocket is a GET, and from Kubernetes 1.35 it needs `create` too
    (AuthorizePodWebsocketUpgradeCreatePermission).
    """
    try:
        return [
            verb
            for verb in ("get", "create")
            if not await may(
                requester,
                verb,
                "pods",
                subresource="portforward",
                namespace=namespace,
                timeout_s=timeout_s,
            )
        ]
    except KubeError:
        return ()
