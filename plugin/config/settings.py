"""The plugin's settings: those of every vendor, beside the vendor's section (`plugin.vendor`).

`plugin.config.load_settings` reads them; docs/plugin.md is generated from the fields.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from kube.client import KUBELET_PORT, kubelet_endpoint
from kube.errors import SettingsError
from kube.settings import FileLayout, OtherNames
from plugin.health import QUIET_S, HealthTimes
from plugin.machine import check_resource_name
from plugin.vendor import VENDOR, VendorSettings
from topology.annotations import TopologyManagerPolicy, TopologyManagerScope
from topology.topology_manager import TopologyManager

if TYPE_CHECKING:
    from kube.client import Endpoint

__all__ = ["ENV_PREFIX", "Mode", "PluginSettings"]

ENV_PREFIX = "COTERIE_PLUGIN_"
"""Of the variables of the settings below."""

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
    """All settings; see each field.

    The vendor's section is the base class, not a part of the `Vendor` value: NVIDIA's flags and
    variables have no prefix, so that its fields must lie beside ours, and only a base class lets
    type checkers know the fields of such a model.
    """

    layout: ClassVar[FileLayout] = FileLayout(
        flag="config_file",
        variable="CONFIG_FILE",
        prefix=ENV_PREFIX,
        section="coterie",
        version="v1",
        ignored=VendorSettings.IGNORED_KEYS,
        raw=VendorSettings.RAW_KEYS,
    )

    SERVING_ONLY: ClassVar = VendorSettings.SERVING_ONLY | {"access_check", "register_blind"}
    """Settings that have no effect where no device is served."""

    mode: Mode = Mode.DEVICE_PLUGIN
    """`device-plugin` serves the GPUs to the kubelet; `reporter` runs beside NVIDIA's plugin and
    only publishes the topology and which pod really has which GPU."""
    node_name: Annotated[str | None, OtherNames((f"{ENV_PREFIX}NODE_NAME", "NODE_NAME"))] = Field(
        default=None, pattern=_NODE_NAME
    )
    """Name of the Node that the plugin runs on and writes to; required, but by `clean` only where
    it removes annotations. From the downward API: `spec.nodeName`."""
    pod_uid: Annotated[str | None, OtherNames((f"{ENV_PREFIX}POD_UID", "POD_UID"))] = None
    """uid of the pod that the plugin runs in, by which it knows its own RuntimeClass. From the
    downward API: `metadata.uid`."""
    kubeconfig: Path | None = None
    """Kubeconfig file of the API server, its current context. Without it the service account of the
    pod that the plugin runs in."""
    resource_name: str = VENDOR.default_resource
    """Extended resource of whole GPUs. By default NVIDIA's, so that pods need no change."""
    simulate: str | None = Field(default=None, min_length=1)
    """Recording of a machine to serve instead of the real one, by name or as a file. Its containers
    get names of GPUs and no GPU."""
    simulate_faults: Path | None = None
    """File of faults of the simulated machine, read again when it changes."""
    measurements: Path | None = None
    """File of measured bandwidths of this machine's GPUs, published with its topology."""
    kubelet_address: Annotated[str, OtherNames((f"{ENV_PREFIX}KUBELET_ADDRESS", "NODE_IP"))] = (
        Field(default="127.0.0.1", min_length=1)
    )
    """Where the kubelet serves its HTTPS API; from the downward API: `status.hostIP`. The default
    is local, which is right on the host's network only."""
    kubelet_port: int = Field(default=KUBELET_PORT, ge=1, le=65535)
    """Its TCP port. 10250 is the kubelet's default."""
    kubelet_ca: Path | None = None
    """Certificate authority of the kubelet's serving certificate, PEM; by default the one of the
    API server, which signs it where kubelets have `serverTLSBootstrap`."""
    kubelet_server_name: str | None = Field(default=None, min_length=1)
    """Name in that certificate, where it is not the address."""
    kubelet_insecure: bool = False
    """Whether to accept any certificate from the kubelet, as self-signed ones require. Whoever can
    answer in the kubelet's place then receives the plugin's token and can report false pods."""
    pod_resources_socket: Path = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    """The kubelet's PodResources socket, which reports which pod really has which device. The
    kubelet's default path."""
    register_blind: bool = False
    """Whether to register with a kubelet whose pods could not be read yet. Pods then get GPUs, but
    not those of their plans, and what `required` pods require is not kept."""
    topology_manager_policy: TopologyManagerPolicy | None = None
    """The kubelet's Topology Manager policy, where the kubelet does not report it (`/configz`); by
    default unknown: devices are then listed with their NUMA nodes, as for all policies but `none`.
    """
    topology_manager_scope: TopologyManagerScope | None = None
    """Its scope; with a policy, by default the kubelet's own, `container`."""
    access_check: bool = True
    """Whether `/readyz` answers 503 while containers may not be able to use the GPUs that they get;
    log and Node have it in any case. `false`, where all pods with GPUs name the RuntimeClass."""
    health_poll_s: float = Field(default=HealthTimes().poll_s, ge=0.1, le=3600)
    """Seconds, 0.1 to 3600, between two polls of each GPU. One that is lost without an
    event is offered for that long at most."""
    health_quiet_s: float = Field(default=QUIET_S, ge=0, le=3600)
    """Seconds, 0 to 3600, that a GPU must be healthy again before it is offered. 60: the program
    that met the error has ended by then (the kubelet's grace period is 30 s). One that did not
    answer is offered as soon as it answers, unless it fails again within an hour."""
    sysfs_root: Path = Path("/sys")
    """Where /sys of the machine is mounted."""
    proc_root: Path = Path("/proc")
    """Where /proc of the machine is mounted."""
    metrics_address: str = Field(default="0.0.0.0", min_length=1)  # noqa: S104 - see the description
    """Address of `/livez`, `/readyz` and `/metrics`. All addresses, since the kubelet and
    Prometheus connect from outside the pod; nothing there is secret."""
    metrics_port: int = Field(default=8890, ge=0, le=65535)
    """Its TCP port; 0 takes a free one."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least level that is logged. `info` writes one line per allocation."""

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
    def registration_socket(self) -> Path | None:
        """The kubelet's; None: register nowhere."""
        return Path(self.kubelet_socket) if self.kubelet_socket else None

    @property
    def device_plugin_folder(self) -> Path:
        """The folder of the kubelet's socket, which ours lie in."""
        usual: str = PluginSettings.model_fields["kubelet_socket"].default
        return Path(self.kubelet_socket or usual).parent

    @property
    def checkpoint(self) -> Path:
        """The file of the kubelet's device manager."""
        return self.device_plugin_folder / _CHECKPOINT

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
    def topology_manager(self) -> TopologyManager | None:
        """What to take the Topology Manager for where the kubelet does not report it."""
        if self.topology_manager_policy is None:
            return None
        scope = self.topology_manager_scope or TopologyManagerScope.CONTAINER
        return TopologyManager(self.topology_manager_policy, scope)
