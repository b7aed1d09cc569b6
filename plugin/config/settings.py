"""The plugin's settings, and what they mean to each of its parts.

Those of every vendor, beside the vendor's section (`plugin.vendor`), and all of them as small
values for each concern. `plugin.config.load_settings` reads them; docs/plugin.md is generated from
the fields here and there.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import AliasChoices, Field, field_validator
from pydantic_settings import SettingsConfigDict

from kube.client import KUBELET_PORT, TopologyManagerSettings, kubelet_endpoint
from kube.errors import SettingsError
from kube.settings import FileLayout
from plugin.health import QUIET_S, HealthTimes
from plugin.machine import check_resource_name
from plugin.vendor import VENDOR, VendorSettings
from topology.annotations import TopologyManagerPolicy, TopologyManagerScope

if TYPE_CHECKING:
    from kube.client import Endpoint

__all__ = ["ENV_PREFIX", "SHARING", "KubeletPlaces", "Mode", "PluginSettings"]

ENV_PREFIX = "COTERIE_PLUGIN_"
"""Of the variables of the settings below."""
SHARING = "sharing"
"""NVIDIA's section of the file for `plugin.machine.read_sharing`."""

_CHECKPOINT = "kubelet_internal_checkpoint"
"""Beside the kubelet's socket (kubernetes v1.36.3, pkg/kubelet/cm/devicemanager/manager.go,
`kubeletDeviceManagerCheckpoint`)."""
_NODE_NAME = r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"
"""(apimachinery, pkg/util/validation, IsDNS1123Subdomain.)"""


class Mode(Enum):
    """What the plugin does on its node."""

    DEVICE_PLUGIN = "device-plugin"
    REPORTER = "reporter"


class PluginSettings(VendorSettings):
    """All settings; see each field."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX)
    layout: ClassVar[FileLayout] = FileLayout(
        flag="config_file",
        variable="CONFIG_FILE",
        section="coterie",
        version="v1",
        ignored=VendorSettings.IGNORED_KEYS,
        raw=frozenset({SHARING}),
    )

    mode: Annotated[
        Mode,
        Field(
            description="`device-plugin` serves the GPUs to the kubelet; `reporter` stands beside "
            "NVIDIA's plugin and only publishes the topology and who really has which GPU."
        ),
    ] = Mode.DEVICE_PLUGIN
    node_name: Annotated[
        str | None,
        Field(
            validation_alias=AliasChoices(f"{ENV_PREFIX}NODE_NAME", "NODE_NAME"),
            pattern=_NODE_NAME,
            description="Name of the Node that the plugin runs on and writes to; needed. From the "
            "downward API: `spec.nodeName`.",
        ),
    ] = None
    kubeconfig: Annotated[
        Path | None,
        Field(
            description="Kubeconfig file of the API server, its current context. Without it the "
            "service account of the pod that the plugin runs in."
        ),
    ] = None
    resource_name: Annotated[
        str,
        Field(
            description="Extended resource of whole GPUs. By default NVIDIA's, so that pods need "
            "no change.",
        ),
    ] = VENDOR.default_resource
    simulate: Annotated[
        str | None,
        Field(
            min_length=1,
            description="Recording of a machine to serve instead of the real one, by name or as a "
            "file. Its containers get names of GPUs and no GPU.",
        ),
    ] = None
    simulate_faults: Annotated[
        Path | None,
        Field(description="File of faults of the simulated machine, read again when it changes."),
    ] = None
    measurements: Annotated[
        Path | None,
        Field(
            description="File of measured bandwidths of this machine's GPUs, published with its "
            "topology."
        ),
    ] = None
    kubelet_address: Annotated[
        str,
        Field(
            validation_alias=AliasChoices(f"{ENV_PREFIX}KUBELET_ADDRESS", "NODE_IP"),
            min_length=1,
            description="Where the kubelet serves its HTTPS API; from the downward API: "
            "`status.hostIP`. By default local, which is right on the host's network only.",
        ),
    ] = "127.0.0.1"
    kubelet_port: Annotated[
        int,
        Field(ge=1, le=65535, description="Its TCP port. 10250 is the kubelet's default."),
    ] = KUBELET_PORT
    kubelet_ca: Annotated[
        Path | None,
        Field(
            description="Certificate authority of the kubelet's serving certificate, PEM; by "
            "default the one of the API server, which signs it where kubelets have "
            "`serverTLSBootstrap`."
        ),
    ] = None
    kubelet_server_name: Annotated[
        str | None,
        Field(min_length=1, description="Name in that certificate, where it is not the address."),
    ] = None
    kubelet_insecure: Annotated[
        bool,
        Field(
            description="Whether to take any certificate of the kubelet's, as self-signed ones "
            "need. Whoever can answer in the kubelet's place then sees the plugin's token and "
            "tells it about pods."
        ),
    ] = False
    pod_resources_socket: Annotated[
        Path,
        Field(
            description="The kubelet's PodResources socket, which tells who really has which "
            "device. The kubelet's default place."
        ),
    ] = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    topology_manager_policy: Annotated[
        TopologyManagerPolicy | None,
        Field(
            description="The kubelet's Topology Manager policy, for where the kubelet does not "
            "tell (`/configz`); by default unknown."
        ),
    ] = None
    topology_manager_scope: Annotated[
        TopologyManagerScope | None,
        Field(description="Its scope; with a policy, by default the kubelet's own, `container`."),
    ] = None
    health_poll_s: Annotated[
        float,
        Field(
            ge=0.1,
            le=3600,
            description="Seconds, 0.1 to 3600, between two questions whether each GPU answers. 5 "
            "is the rhythm of NVIDIA's plugin.",
        ),
    ] = HealthTimes().poll_s
    health_quiet_s: Annotated[
        float,
        Field(
            ge=0,
            le=3600,
            description="Seconds, 0 to 3600, that a GPU must be well again before it is offered. "
            "60: the program that met the error is gone by then (30 s are the kubelet's grace).",
        ),
    ] = QUIET_S
    sysfs_root: Annotated[Path, Field(description="Where /sys of the machine is seen.")] = Path(
        "/sys"
    )
    proc_root: Annotated[Path, Field(description="Where /proc of the machine is seen.")] = Path(
        "/proc"
    )
    metrics_address: Annotated[
        str,
        Field(
            min_length=1,
            description="Address of `/livez`, `/readyz` and `/metrics`. All addresses, since the "
            "kubelet and Prometheus ask from outside the pod; nothing there is secret.",
        ),
    ] = "0.0.0.0"  # noqa: S104 - see the description
    metrics_port: Annotated[
        int,
        Field(ge=0, le=65535, description="Its TCP port; 0 takes a free one."),
    ] = 8890
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Field(description="Least level that is logged. `info` writes one line per allocation."),
    ] = "info"

    @field_validator("resource_name")
    @classmethod
    def _is_resource(cls, value: str) -> str:
        try:
            return check_resource_name(value)
        except SettingsError as error:
            raise ValueError(str(error)) from error

    @property
    def node(self) -> str:
        """The node's name. Raises `SettingsError` where it is not set."""
        if self.node_name is None:
            msg = "setting node_name is missing, expected this node's name (NODE_NAME)"
            raise SettingsError(msg)
        return self.node_name

    @property
    def kubelet_places(self) -> KubeletPlaces:
        """Where the kubelet's files and sockets are."""
        usual: str = PluginSettings.model_fields["kubelet_socket"].default
        folder = Path(self.kubelet_socket or usual).parent
        socket = Path(self.kubelet_socket) if self.kubelet_socket else None
        return KubeletPlaces(socket, folder, folder / _CHECKPOINT, self.pod_resources_socket)

    @property
    def kubelet_endpoint(self) -> Endpoint:
        """Where the kubelet's HTTPS API is."""
        return kubelet_endpoint(
            self.kubelet_address,
            port=self.kubelet_port,
            ca_file=self.kubelet_ca,
            server_name=self.kubelet_server_name,
            is_verified=not self.kubelet_insecure,
        )

    @property
    def topology_manager(self) -> TopologyManagerSettings | None:
        """What to take the Topology Manager for where the kubelet does not tell."""
        if self.topology_manager_policy is None:
            return None
        scope = self.topology_manager_scope or TopologyManagerScope.CONTAINER
        return TopologyManagerSettings(self.topology_manager_policy, scope)


@dataclass(frozen=True, slots=True)
class KubeletPlaces:
    """Files of the kubelet's. `socket` None: register nowhere; `folder` is of our own sockets."""

    socket: Path | None
    folder: Path
    checkpoint: Path
    pod_resources: Path
