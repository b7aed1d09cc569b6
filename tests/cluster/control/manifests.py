"""The manifests of the chart as the tests run them: nothing is copied, only addresses differ.

Renders them by Helm; returns the objects of a way, those of one template, the kube-scheduler
configuration of a mode, and the user as which the extender acts once they are applied.
"""

from __future__ import annotations

import enum
import functools
import json
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from deploy.manifests import NAMESPACE, render
from tests.cluster.programs.build import helm
from tests.cluster.programs.versions import chosen_helm, chosen_minor, kubernetes

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    from tests.cluster.control.control_plane import ControlPlane

__all__ = [
    "DEPLOY",
    "NAMESPACE",
    "ClientFiles",
    "Mode",
    "apply_manifest",
    "await_so",
    "documents",
    "extender_pod",
    "extender_settings",
    "extender_user",
    "install",
    "kubeadm_pod",
    "objects",
    "rendered",
    "scheduler_config",
    "send_gpu_pods",
    "shipped_config",
    "workload",
]

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"


class Mode(enum.Enum):
    """A way of running the extender; the value is the chart's `mode`."""

    KUBEADM = "kubeadm"
    SECOND_SCHEDULER = "second-scheduler"
    SERVICE = "service"


_PREFIX = "COTERIE_EXTENDER_"
_DRY_RUN = {"dryRun": "All"}
_SOURCE = re.compile(r"^# Source: coterie/templates/(.*)$", re.MULTILINE)
_WORKLOADS = {"Deployment", "DaemonSet"}
_SOON_S = 60.0
_POLL_S = 0.05


@functools.cache
def rendered(name: str, *values: str) -> str:
    """The manifest of a way or a part (`deploy.manifests`), for the chosen Kubernetes.

    `values` are those of the chart, as `plugin.enabled=false`.
    """
    given = (word for one in values for word in ("--set", one))
    version = kubernetes(chosen_minor()).version
    images = ("--set-string", "image.registry=registry.example,image.tag=test")
    return render(helm(chosen_helm()), name, *images, *given, kubernetes=version)


def objects(name: str, *values: str) -> list[dict[str, Any]]:
    """The objects of a manifest."""
    return [one for one in yaml.safe_load_all(rendered(name, *values)) if one is not None]


def documents(template: str, name: str = "second-scheduler", *values: str) -> list[dict[str, Any]]:
    """The objects that one template of the chart makes, as `rights/own-keys`."""
    parts = re.split(r"^---$", rendered(name, *values), flags=re.MULTILINE)
    found = [
        yaml.safe_load(part)
        for part in parts
        if any(one == f"{template}.yaml" for one in _SOURCE.findall(part))
    ]
    return [one for one in found if one is not None]


@dataclass(frozen=True, slots=True)
class ClientFiles:
    """What kube-scheduler needs to call the extender over mutual TLS."""

    ca: Path
    certificate: Path
    key: Path


def scheduler_config(
    mode: Mode,
    extender_url: str,
    *,
    kubeconfig: Path | None = None,
    client_files: ClientFiles | None = None,
) -> str:
    """The mode's own KubeSchedulerConfiguration with this machine's addresses and paths.

    Everything else is what deploy/ says. Without `kubeconfig` the file names none, as inside a
    cluster. Leader election can be had or left out by kube-scheduler's flag `--leader-elect`, which
    is above the file. `client_files` belong to an https URL; with http there is no TLS, for tests
    of anything else.
    """
    config: dict[str, Any] = yaml.safe_load(shipped_config(mode))
    connection = config["clientConnection"]
    connection.pop("kubeconfig", None)
    if kubeconfig is not None:
        connection["kubeconfig"] = str(kubeconfig)
    (extender,) = config["extenders"]
    extender["urlPrefix"] = extender_url
    if extender_url.startswith("http:"):
        extender.pop("tlsConfig", None)
    if client_files is not None:
        extender["tlsConfig"] |= {
            "caFile": str(client_files.ca),
            "certFile": str(client_files.certificate),
            "keyFile": str(client_files.key),
        }
    return json.dumps(config, indent=2)


def workload(template: str, name: str = "second-scheduler", *values: str) -> dict[str, Any]:
    """The Deployment or DaemonSet of a template."""
    (found,) = (one for one in documents(template, name, *values) if one["kind"] in _WORKLOADS)
    return found


def kubeadm_pod(file: str = "patches/kube-scheduler1+strategic") -> dict[str, Any]:
    """The pod's spec in a patch of deploy/kubeadm."""
    text = (DEPLOY / "kubeadm" / f"{file}.yaml").read_text(encoding="utf-8")
    spec: dict[str, Any] = yaml.safe_load(text)["spec"]
    return spec


def extender_pod(mode: Mode) -> dict[str, Any]:
    """The spec of the pods that the extender runs in; of kubeadm's, what is patched into it."""
    if mode is Mode.KUBEADM:
        return kubeadm_pod()
    template = {Mode.SERVICE: "extender/service"}.get(mode, "scheduler/deployment")
    spec: dict[str, Any] = workload(template, mode.value)["spec"]["template"]["spec"]
    return spec


def extender_settings(mode: Mode) -> dict[str, str]:
    """The extender's settings in the mode's manifest, by name."""
    (container,) = (one for one in extender_pod(mode)["containers"] if "extender" in one["name"])
    return {
        entry["name"].removeprefix(_PREFIX).lower(): entry["value"]
        for entry in container["env"]
        if entry["name"].startswith(_PREFIX)
    }


def shipped_config(mode: Mode) -> str:
    """The KubeSchedulerConfiguration of the mode, as it is installed."""
    if mode is Mode.KUBEADM:
        return (DEPLOY / "kubeadm" / "scheduler-config.yaml").read_text(encoding="utf-8")
    (config_map,) = documents("scheduler/config", mode.value)
    text: str = config_map["data"]["scheduler-config.yaml"]
    return text


def apply_manifest(plane: ControlPlane, name: str, *values: str) -> None:
    """Apply a manifest by kubectl."""
    plane.kubectl("apply", "-f", "-", stdin=rendered(name, *values))


def install(plane: ControlPlane, mode: Mode) -> Path:
    """Apply the mode's manifest without the node plugin; the kubeconfig of who the extender is.

    Returns when the API server enforces the policies, which it does a moment after it took them.
    """
    apply_manifest(plane, mode.value, "plugin.enabled=false")
    await_so(
        lambda: _dry_run(plane, {"coterie.gpu/affinity": "no-such"}).status_code == 422, "user keys"
    )
    await_so(lambda: _dry_run(plane, {"coterie.gpu/plan": "forged"}).status_code == 403, "own keys")
    await_so(
        lambda: _dry_run(plane, {}, user=extender_user(mode)).status_code == 403,
        "extender's rights",
    )
    if mode is Mode.KUBEADM:
        return plane.kubeconfig("coterie-extender")
    return plane.service_account(NAMESPACE, "coterie-extender")


def extender_user(mode: Mode) -> str:
    """Who the extender is to the API server."""
    if mode is Mode.KUBEADM:
        return "coterie-extender"
    return f"system:serviceaccount:{NAMESPACE}:coterie-extender"


def send_gpu_pods(plane: ControlPlane) -> None:
    """Switch on the policy that gives GPU pods their schedulerName, and wait for it."""
    apply_manifest(plane, "scheduler-name")
    await_so(
        lambda: _dry_run(plane, {}).json()["spec"]["schedulerName"] == "coterie-scheduler",
        "schedulerName",
    )


def await_so(is_so: Callable[[], bool], what: str) -> None:
    """Ask until it is so; fails with `what` where it does not come true soon."""
    deadline = time.monotonic() + _SOON_S
    while not is_so():
        assert time.monotonic() < deadline, f"{what}: not so after {_SOON_S:g} s"
        time.sleep(_POLL_S)


def _dry_run(
    plane: ControlPlane, annotations: dict[str, str], *, user: str = "root"
) -> httpx.Response:
    """What creating a pod would meet, were that user allowed by RBAC to do everything."""
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    pod = {
        "metadata": {"name": "dry-run", "annotations": annotations},
        "spec": {"containers": [{"name": "main", "image": "none", "resources": limits}]},
    }
    return plane.client.post(
        "/api/v1/namespaces/default/pods",
        json=pod,
        params=_DRY_RUN,
        headers={"Impersonate-User": user, "Impersonate-Group": "system:masters"},
    )
