"""Pods whose containers really run, on real kubelets, and what became of them.

Writes the manifest of such a pod, creates the pod and awaits it through the API server by watching,
so that no test polls. How a container of it behaves is in its arguments (modules/workload).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx

from tests.cluster.control.control_plane import CommandFailed
from tests.cluster.fleet.workload import PODS, RESOURCE, pod_path
from tests.cluster.programs.images import IMAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tests.cluster.control.control_plane import ControlPlane

__all__ = [
    "RealPods",
    "has_ended",
    "is_failed",
    "is_running",
    "real_container",
    "real_pod",
    "real_pod_spec",
]

_SOON_S = 60.0


def real_container(
    name: str, gpus: int = 0, *, runs_s: float | None = None, code: int = 0, **fields: object
) -> dict[str, Any]:
    """A container that prints what it was given and runs; without `runs_s` until it is stopped."""
    arguments = ["-run", f"-code={code}"]
    if runs_s is not None:
        arguments.append(f"-for={runs_s}s")
    limits = {RESOURCE: str(gpus)} if gpus else {}
    resources = {"limits": limits, "requests": {"cpu": "1m"} | limits}
    return {"name": name, "image": IMAGE, "args": arguments, "resources": resources, **fields}


def real_pod_spec(
    containers: Iterable[Mapping[str, Any]],
    inits: Iterable[Mapping[str, Any]] = (),
    **fields: object,
) -> dict[str, Any]:
    """The spec of a pod that needs nothing but its node: no network of its own, no account.

    With a grace period of 0 the API server would forget a deleted pod before its kubelet ended it.
    """
    return {
        "hostNetwork": True,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "initContainers": list(inits),
        "containers": list(containers),
        **fields,
    }


def real_pod(
    name: str,
    *containers: Mapping[str, Any],
    annotations: Mapping[str, str] | None = None,
    inits: Iterable[Mapping[str, Any]] = (),
    **fields: object,
) -> dict[str, Any]:
    """A pod; `fields` are its spec's, `nodeName` for one that no scheduler shall see."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": dict(annotations or {})},
        "spec": real_pod_spec(containers, inits, **fields),
    }


def is_running(pod: Mapping[str, Any]) -> bool:
    """Whether all its containers have started, and none has ended."""
    statuses = pod["status"].get("containerStatuses", [])
    return bool(statuses) and all("running" in one["state"] for one in statuses)


def has_ended(pod: Mapping[str, Any]) -> bool:
    """Whether nothing of it runs any more, nor ever will."""
    return pod["status"].get("phase") in {"Succeeded", "Failed"}


def is_failed(pod: Mapping[str, Any]) -> bool:
    """Whether it ended badly, or was refused by its kubelet."""
    return bool(pod["status"].get("phase") == "Failed")


class RealPods:
    """The pods of one control plane."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self._plane = control_plane

    def create(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Create one; the pod as it is then."""
        return self._call("POST", PODS, manifest)

    def get(self, name: str) -> dict[str, Any]:
        """The pod as it is now."""
        return self._call("GET", pod_path(name))

    def until(
        self,
        name: str,
        is_so: Callable[[Mapping[str, Any]], bool],
        *,
        within_s: float = _SOON_S,
    ) -> dict[str, Any]:
        """Wait until that is so; the pod as it is then. Raises `TimeoutError`, `CommandFailed`."""
        for pod in self._versions(name, within_s):
            if pod is None:
                msg = f"pod {name} is gone"
                raise CommandFailed(msg)
            if is_so(pod):
                return pod
        now = json.dumps(self.get(name)["status"])
        msg = f"pod {name} after {within_s:g} s: {now}"
        raise TimeoutError(msg)

    def delete_later(self, name: str) -> None:
        """Say that it shall be deleted."""
        self._call("DELETE", pod_path(name))

    def delete(self, *names: str, is_forced: bool = False) -> None:
        """Delete these and wait until they are no more; forced, whatever their kubelets say."""
        query = {"gracePeriodSeconds": "0"} if is_forced else {}
        for name in names:
            self._call("DELETE", pod_path(name), query=query)
        for name in names:
            if not any(pod is None for pod in self._versions(name, _SOON_S)):
                msg = f"pod {name} is still there"
                raise TimeoutError(msg)

    def clear(self, *, is_forced: bool = False) -> None:
        """Delete all there are."""
        items = self._call("GET", PODS)["items"]
        self.delete(*(pod["metadata"]["name"] for pod in items), is_forced=is_forced)

    def _versions(self, name: str, within_s: float) -> Iterable[dict[str, Any] | None]:
        """The pod now and after each change, for that long; None when it is gone."""
        chosen = {"fieldSelector": f"metadata.name={name}"}
        listed = self._call("GET", PODS, query=chosen)
        yield (listed["items"] or [None])[0]
        watch = chosen | {
            "watch": "true",
            "resourceVersion": listed["metadata"]["resourceVersion"],
            "timeoutSeconds": str(int(within_s)),
        }
        with self._plane.client.stream("GET", PODS, params=watch, timeout=within_s + 5) as answer:
            for line in answer.iter_lines():
                event = json.loads(line)
                yield None if event["type"] == "DELETED" else event["object"]

    def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        answer = self._plane.client.request(method, path, json=body, params=query)
        if answer.is_error and not (
            method == "DELETE" and answer.status_code == httpx.codes.NOT_FOUND
        ):
            msg = f"{method} {path}: {answer.status_code}: {answer.text[:500]}"
            raise CommandFailed(msg)
        return dict(answer.json())
