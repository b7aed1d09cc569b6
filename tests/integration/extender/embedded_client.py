"""What users and kube-scheduler send to an extender over an embedded cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.unit.extender.pods import args

if TYPE_CHECKING:
    from collections.abc import Sequence

    from httpx import Client

__all__ = ["PODS", "bind", "create", "delete", "filtered", "place"]

PODS = "/api/v1/namespaces/default/pods"


def create(client: Client, pod: dict[str, Any]) -> dict[str, Any]:
    """Create a pod; returns it as the server has it."""
    created: dict[str, Any] = client.post(PODS, json=pod).raise_for_status().json()
    return created


def filtered(client: Client, pod: dict[str, Any], nodes: Sequence[str]) -> list[str]:
    """The nodes that filter leaves."""
    named: list[str] = client.post("/filter", content=args(pod, [*nodes])).json()["NodeNames"]
    return named


def bind(client: Client, pod: dict[str, Any], node: str) -> None:
    """Bind a pod."""
    meta = pod["metadata"]
    wanted = {"PodName": meta["name"], "PodNamespace": "default", "PodUID": meta["uid"]}
    assert client.post("/bind", json=wanted | {"Node": node}).json() == {"Error": ""}


def place(client: Client, pod: dict[str, Any], nodes: Sequence[str]) -> None:
    """Create a pod and bind it to the first of these nodes that filter leaves."""
    created = create(client, pod)
    bind(client, created, filtered(client, created, nodes)[0])


def delete(client: Client, name: str) -> None:
    """Delete a pod."""
    client.delete(f"{PODS}/{name}").raise_for_status()
