"""Who the plugins of a test are: the chart's account, with a token of a pod on the node.

Makes a kubeconfig with such a token and nothing else. Rights, policies, the names of account and
namespace are the chart's. It takes the kubelet's place only where a kubelet would request the
pod's token: the token lives longer than the tests, so that it never needs renewal.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import httpx

from tests.cluster.control.control_plane import CommandFailed
from tests.cluster.control.credentials import kubeconfig
from tests.cluster.control.manifests import apply_manifest, await_so
from tests.cluster.node.real_pods import real_container, real_pod_spec
from topology.model import names

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.control.control_plane import ControlPlane

__all__ = ["deploy_plugin", "plugin_kubeconfig"]

_NAMESPACE, _ACCOUNT = "coterie-node", "coterie-plugin"
_TOKEN_LIFE_S = 24 * 3600
_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


def deploy_plugin(plane: ControlPlane) -> None:
    """Apply the node plugin, and wait until rights and policies are in force.

    From then on only a node's own plugin can write its annotations, not even the admin. No plugin
    starts by this: test clusters have no DaemonSet controller.
    """
    apply_manifest(plane, "audit")
    await_so(partial(_is_guarded, plane), "policies of the node plugin")
    await_so(partial(_has_rights, plane), "rights of the node plugin")


def plugin_kubeconfig(plane: ControlPlane, node: str) -> Path:
    """Put a pod of the plugin's account on the node, and write a kubeconfig with its token."""
    pod = {
        "metadata": {"generateName": f"{_ACCOUNT}-"},
        "spec": real_pod_spec(
            [real_container("plugin")], nodeName=node, serviceAccountName=_ACCOUNT
        ),
    }
    made = _post(plane, f"/api/v1/namespaces/{_NAMESPACE}/pods", pod)["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": made["name"], "uid": made["uid"]}
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": _TOKEN_LIFE_S, "boundObjectRef": owner},
    }
    path = f"/api/v1/namespaces/{_NAMESPACE}/serviceaccounts/{_ACCOUNT}/token"
    token = str(_post(plane, path, request)["status"]["token"])
    file = plane.folder / f"{made['name']}.kubeconfig"
    file.touch(mode=0o600)
    file.write_text(kubeconfig(plane.url, plane.authority.certificate, token), encoding="utf-8")
    return file


def _is_guarded(plane: ControlPlane) -> bool:
    """Whether the admin is refused to say what a node's GPUs are."""
    forged = {"metadata": {"name": "forged", "annotations": {names.TOPOLOGY: "forged"}}}
    answer = plane.client.post("/api/v1/nodes", json=forged, params={"dryRun": "All"})
    return answer.status_code == httpx.codes.FORBIDDEN


def _has_rights(plane: ControlPlane) -> bool:
    attributes = {
        "user": f"system:serviceaccount:{_NAMESPACE}:{_ACCOUNT}",
        "resourceAttributes": {"verb": "patch", "resource": "nodes"},
    }
    return bool(_post(plane, _REVIEWS, {"spec": attributes})["status"]["allowed"])


def _post(plane: ControlPlane, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = plane.client.post(path, json=body)
    if answer.is_error:
        msg = f"{path}: {answer.status_code}: {answer.text[:500]}"
        raise CommandFailed(msg)
    return dict(answer.json())
