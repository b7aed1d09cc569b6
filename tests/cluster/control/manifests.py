"""The manifests of deploy/ as the tests run them: nothing is copied, only addresses differ.

Returns the kube-scheduler configuration of a mode, the objects of a kustomization, and the user as
which the extender acts once they are applied.
"""

from __future__ import annotations

import enum
import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    from tests.cluster.control.control_plane import ControlPlane

__all__ = [
    "DEPLOY",
    "EXTENDER_FILES",
    "NAMESPACE",
    "ClientFiles",
    "Mode",
    "await_so",
    "documents",
    "extender_settings",
    "extender_user",
    "install",
    "pod_spec",
    "render",
    "scheduler_config",
    "scheduler_name_folder",
    "send_gpu_pods",
]

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
NAMESPACE = "coterie-system"


class Mode(enum.Enum):
    """A way of running the extender; the value is its folder of deploy/."""

    KUBEADM = "kubeadm"
    SECOND_SCHEDULER = "second-scheduler"
    SERVICE = "service"


EXTENDER_FILES = {
    Mode.KUBEADM: "kubeadm/patches/kube-scheduler1+strategic.yaml",
    Mode.SECOND_SCHEDULER: "second-scheduler/extender.yaml",
    Mode.SERVICE: "service/extender.yaml",
}
"""Where each mode's manifest says how the extender runs."""
_PREFIX = "COTERIE_EXTENDER_"
_DRY_RUN = {"dryRun": "All"}
_SOON_S = 60.0
_POLL_S = 0.05


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
    text = (DEPLOY / mode.value / "scheduler-config.yaml").read_text(encoding="utf-8")
    config: dict[str, Any] = yaml.safe_load(text)
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


def documents(path: str) -> list[dict[str, Any]]:
    """The documents of one file of deploy/."""
    return list(yaml.safe_load_all((DEPLOY / path).read_text(encoding="utf-8")))


def pod_spec(path: str) -> dict[str, Any]:
    """The pod's spec in a file that begins with a workload, or with a patch of one or of a pod."""
    spec: dict[str, Any] = documents(path)[0]["spec"]
    return spec.get("template", {"spec": spec})["spec"]  # type: ignore[no-any-return]  # YAML


def extender_settings(mode: Mode) -> dict[str, str]:
    """The extender's settings in the mode's manifest, by name; `$(POD_IP)` is not filled in."""
    spec = pod_spec(EXTENDER_FILES[mode])
    (container,) = (one for one in spec["containers"] if "extender" in one["name"])
    return {
        entry["name"].removeprefix(_PREFIX).lower(): entry["value"]
        for entry in container["env"]
        if entry["name"].startswith(_PREFIX)
    }


def render(kubectl: Path, folder: Path) -> list[dict[str, Any]]:
    """The objects of a kustomization, as `kubectl apply -k` would send them."""
    done = subprocess.run(
        [kubectl, "kustomize", folder], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def install(plane: ControlPlane, mode: Mode) -> Path:
    """Apply the mode's manifests; the kubeconfig of who the extender is there.

    Returns when the API server enforces the policies, which it does a moment after it took them.
    """
    plane.kubectl("apply", "-k", str(DEPLOY / mode.value))
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


def scheduler_name_folder(minor: str) -> str:
    """Which folder of deploy/ has the policy for schedulerName as that Kubernetes serves it."""
    return "scheduler-name-v1beta1" if minor == "1.35" else "scheduler-name"


def send_gpu_pods(plane: ControlPlane) -> None:
    """Switch on the policy that gives GPU pods their schedulerName, and wait for it."""
    plane.kubectl("apply", "-k", str(DEPLOY / scheduler_name_folder(plane.binaries.minor)))
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
