"""The settings that NVIDIA's device plugin has too, under its names and with its meaning.

Each with its names on the command line, in the environment and in NVIDIA's file, its values, and
how it compares with NVIDIA's, from which docs/plugin.md is generated. `kube.settings` reads them.

Names and defaults are those of k8s-device-plugin v0.20.0: cmd/nvidia-device-plugin/main.go,
api/config/v1/consts.go, flags.go and imex.go, internal/rm/health.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal

from pydantic import AliasChoices, Field, field_validator

from kube.errors import SettingsError
from kube.settings import OtherNames, ProgramSettings
from plugin.machine import SharedPolicy
from plugin.nvidia.container.allocate_response import AccessRules, ListStrategy
from plugin.nvidia.container.cdi import CDI_ANNOTATION_PREFIX
from plugin.nvidia.container.cdi_files import DEFAULT_FOLDER, CdiGenerator, CdiRules
from plugin.nvidia.container.device_nodes import Extra, IdStrategy
from plugin.nvidia.mig_strategy import MigStrategy
from plugin.nvidia.xids import XidRules, read_xid_rules
from topology.errors import quote

__all__ = ["SAME", "NvidiaNames", "NvidiaSettings", "VendorSettings"]

_KUBELET_SOCKET = "/var/lib/kubelet/device-plugins/kubelet.sock"
"""(k8s.io/kubelet v0.36.3, pkg/apis/deviceplugin/v1beta1/constants.go, `KubeletSocket`)."""

SAME = "same"
_WITH_TOOL = "same, and needs `nvidia-ctk`"
_ALSO_FILE = "same, and also a key of the file"


@dataclass(frozen=True, slots=True)
class NvidiaNames(OtherNames):
    """Names beside a setting's own and its variables; `state` compares ours with NVIDIA's."""

    state: str = SAME


class NvidiaSettings(ProgramSettings):
    """See each field. Fields without a key in NVIDIA's file have one in our section of it."""

    mig_strategy: Annotated[
        MigStrategy,
        NvidiaNames(key="flags.migStrategy"),
        Field(
            validation_alias=AliasChoices("MIG_STRATEGY"),
            description="Whether MIG instances are offered, as GPUs or by profile.",
        ),
    ] = MigStrategy.NONE
    fail_on_init_error: Annotated[
        bool,
        NvidiaNames(key="flags.failOnInitError"),
        Field(
            validation_alias=AliasChoices("FAIL_ON_INIT_ERROR"),
            description="Whether to end where NVML cannot be started; else wait for ever, as on "
            "nodes without GPUs.",
        ),
    ] = True
    driver_root: Annotated[
        Path,
        NvidiaNames(key="flags.nvidiaDriverRoot", flags=("nvidia-driver-root",)),
        Field(
            validation_alias=AliasChoices("NVIDIA_DRIVER_ROOT"),
            description="Root of the driver's files on the host.",
        ),
    ] = Path("/")
    dev_root: Annotated[
        Path | None,
        NvidiaNames(key="flags.nvidiaDevRoot", flags=("nvidia-dev-root",)),
        Field(
            validation_alias=AliasChoices("NVIDIA_DEV_ROOT"),
            description="Root of the device nodes on the host; by default `driver_root`.",
        ),
    ] = None
    driver_root_ctr_path: Annotated[
        Path,
        NvidiaNames(key="flags.plugin.containerDriverRoot", flags=("container-driver-root",)),
        Field(
            validation_alias=AliasChoices("DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT"),
            description="Where the plugin's own container sees `driver_root`; libnvidia-ml.so.1 is "
            "looked for there first.",
        ),
    ] = Path("/driver-root")
    pass_device_specs: Annotated[
        bool,
        NvidiaNames(key="flags.plugin.passDeviceSpecs"),
        Field(
            validation_alias=AliasChoices("PASS_DEVICE_SPECS"),
            description="Whether containers are given device nodes through the kubelet, as "
            "CPUManager needs. The plugin must see the host's /dev.",
        ),
    ] = False
    device_list_strategy: Annotated[
        tuple[ListStrategy, ...],
        NvidiaNames(key="flags.plugin.deviceListStrategy"),
        Field(
            validation_alias=AliasChoices("DEVICE_LIST_STRATEGY"),
            min_length=1,
            description="How a container's runtime is told its devices, comma-separated where in "
            "several ways at once.",
        ),
    ] = (ListStrategy.ENVVAR,)
    device_id_strategy: Annotated[
        IdStrategy,
        NvidiaNames(key="flags.plugin.deviceIDStrategy"),
        Field(
            validation_alias=AliasChoices("DEVICE_ID_STRATEGY"),
            description="By which name the runtime is told a device.",
        ),
    ] = IdStrategy.UUID
    gdrcopy_enabled: Annotated[
        bool,
        NvidiaNames(key="flags.gdrcopyEnabled"),
        Field(
            validation_alias=AliasChoices("GDRCOPY_ENABLED"),
            description="Whether containers with GPUs get GDRCopy.",
        ),
    ] = False
    gds_enabled: Annotated[
        bool,
        NvidiaNames(key="flags.gdsEnabled"),
        Field(
            validation_alias=AliasChoices("GDS_ENABLED"),
            description="Whether containers with GPUs get GPUDirect Storage.",
        ),
    ] = False
    mofed_enabled: Annotated[
        bool,
        NvidiaNames(key="flags.mofedEnabled"),
        Field(
            validation_alias=AliasChoices("MOFED_ENABLED"),
            description="Whether containers with GPUs get the RDMA devices of MOFED.",
        ),
    ] = False
    kubelet_socket: Annotated[
        str,
        NvidiaNames(state=_ALSO_FILE),
        Field(
            validation_alias=AliasChoices("KUBELET_SOCKET"),
            pattern=r"^(/.+)?$",
            description="The kubelet's registration socket, an absolute path; the plugin's own "
            "sockets lie beside it. Empty: serve, and register nowhere.",
        ),
    ] = _KUBELET_SOCKET
    cdi_annotation_prefix: Annotated[
        str,
        NvidiaNames(key="flags.plugin.cdiAnnotationPrefix"),
        Field(
            validation_alias=AliasChoices("CDI_ANNOTATION_PREFIX"),
            pattern=r"^[a-z0-9.-]{1,253}/$",
            description="Prefix of the annotation by which `cdi-annotations` names devices.",
        ),
    ] = CDI_ANNOTATION_PREFIX
    nvidia_cdi_hook_path: Annotated[
        str,
        NvidiaNames(key="flags.plugin.nvidiaCTKPath", flags=("nvidia-ctk-path",), state=_WITH_TOOL),
        Field(
            validation_alias=AliasChoices("NVIDIA_CDI_HOOK_PATH", "NVIDIA_CTK_PATH"),
            min_length=1,
            description="Path on the host of the program that CDI specifications name as hook.",
        ),
    ] = "/usr/bin/nvidia-ctk"
    cdi_feature_flags: Annotated[
        tuple[str, ...],
        NvidiaNames(state=_WITH_TOOL),
        Field(
            validation_alias=AliasChoices("CDI_FEATURE_FLAGS"),
            description="Feature flags of the making of CDI specifications, comma-separated.",
        ),
    ] = ()
    cdi_disable_hooks: Annotated[
        tuple[str, ...],
        NvidiaNames(state=_WITH_TOOL),
        Field(
            validation_alias=AliasChoices("CDI_DISABLE_HOOKS"),
            description="Hooks that CDI specifications are to leave out, comma-separated.",
        ),
    ] = ()
    device_discovery_strategy: Annotated[
        Literal["auto", "nvml"],
        NvidiaNames(
            key="flags.deviceDiscoveryStrategy", state="`auto` and `nvml` the same, `tegra` refused"
        ),
        Field(
            validation_alias=AliasChoices("DEVICE_DISCOVERY_STRATEGY"),
            description="How GPUs are found; both are NVML. Tegra has no NVML and is refused.",
        ),
    ] = "auto"
    imex_channel_ids: Annotated[
        tuple[int, ...],
        NvidiaNames(key="imex.channelIDs"),
        Field(
            validation_alias=AliasChoices("IMEX_CHANNEL_IDS"),
            description="IMEX channels that containers with GPUs get: none, or 0.",
        ),
    ] = ()
    imex_required: Annotated[
        bool,
        NvidiaNames(key="imex.required"),
        Field(
            validation_alias=AliasChoices("IMEX_REQUIRED"),
            description="Whether to end where such a channel has no device node; else containers "
            "go without.",
        ),
    ] = False
    shared_devices_allocation_policy: Annotated[
        SharedPolicy,
        NvidiaNames(key="flags.plugin.sharedDevicesAllocationPolicy"),
        Field(
            validation_alias=AliasChoices("SHARED_DEVICES_ALLOCATION_POLICY"),
            description="Which replicas go first: of GPUs in little use, or in much.",
        ),
    ] = SharedPolicy.DISTRIBUTED
    mps_root: Annotated[
        str,
        NvidiaNames(key="flags.mpsRoot", state="no effect: MPS (`sharing.mps`) is refused"),
        Field(
            validation_alias=AliasChoices("MPS_ROOT"),
            description="Folder of MPS control daemons; NVIDIA's chart sets it without MPS too.",
        ),
    ] = ""
    dp_disable_healthchecks: Annotated[
        str,
        NvidiaNames(state="same, and also a flag and a key"),
        Field(
            validation_alias=AliasChoices("DP_DISABLE_HEALTHCHECKS"),
            description="`all`, or XIDs that leave a GPU healthy, comma-separated.",
        ),
    ] = ""
    dp_enable_healthchecks: Annotated[
        str,
        NvidiaNames(state="same, and also a flag and a key"),
        Field(
            validation_alias=AliasChoices("DP_ENABLE_HEALTHCHECKS"),
            description="`all`, or XIDs that count in spite of all else, comma-separated.",
        ),
    ] = ""

    @field_validator("dev_root", mode="before")
    @classmethod
    def _none_if_empty(cls, value: object) -> object:
        """(api/config/v1/config.go, `NewConfig`)."""
        return None if value == "" else value

    @field_validator("driver_root", "dev_root", "driver_root_ctr_path")
    @classmethod
    def _is_absolute(cls, value: Path | None) -> Path | None:
        if value is not None and not value.is_absolute():
            msg = "expected an absolute path"
            raise ValueError(msg)
        return value

    @field_validator("imex_channel_ids")
    @classmethod
    def _is_the_one_channel(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        """(api/config/v1/imex.go, `AssertChannelIDsValid`)."""
        if value not in {(), (0,)}:
            msg = "expected nothing or 0, as NVIDIA's plugin does"
            raise ValueError(msg)
        return value


class VendorSettings(NvidiaSettings):
    """The settings that are about NVIDIA: those of its plugin, and ours about CDI."""

    IGNORED_KEYS: ClassVar = MappingProxyType(
        {
            "flags.gfd": "for gpu-feature-discovery",
            "flags.useNodeFeatureAPI": "for gpu-feature-discovery",
            "resources": "NVIDIA's plugin ignores it too",
        }
    )
    """Keys of NVIDIA's file that are skipped, and why."""
    SERVING_ONLY: ClassVar = frozenset(
        {
            *("device_list_strategy", "device_id_strategy", "pass_device_specs"),
            *("gdrcopy_enabled", "gds_enabled", "mofed_enabled", "imex_channel_ids"),
            *("imex_required", "cdi_annotation_prefix", "cdi_feature_flags", "cdi_disable_hooks"),
            *("cdi_generator", "cdi_folder", "nvidia_cdi_hook_path"),
            "shared_devices_allocation_policy",
        }
    )
    """Settings that have no effect where no device is served."""

    cdi_generator: Annotated[
        CdiGenerator,
        Field(
            description="Who makes CDI specifications: `nvidia-ctk`, the plugin itself (`own`: "
            "device nodes only), or the former where it is on the path of programs (`auto`)."
        ),
    ] = CdiGenerator.AUTO
    cdi_folder: Annotated[
        Path,
        Field(description="Folder of CDI specifications. The one that NVIDIA's plugin writes to."),
    ] = DEFAULT_FOLDER

    @property
    def host_dev_root(self) -> Path:
        """Under which root the host has the device nodes."""
        return self.driver_root if self.dev_root is None else self.dev_root

    @property
    def extras(self) -> frozenset[Extra]:
        """What else containers with GPUs get."""
        chosen = {
            Extra.GDRCOPY: self.gdrcopy_enabled,
            Extra.GDS: self.gds_enabled,
            Extra.MOFED: self.mofed_enabled,
        }
        return frozenset(extra for extra, is_on in chosen.items() if is_on)

    @property
    def access_rules(self) -> AccessRules:
        """How containers are given their devices."""
        return AccessRules(
            list_strategies=frozenset(self.device_list_strategy),
            id_strategy=self.device_id_strategy,
            passes_device_nodes=self.pass_device_specs,
            dev_root=str(self.host_dev_root),
            extras=self.extras,
            cdi_annotation_prefix=self.cdi_annotation_prefix,
        )

    @property
    def cdi_rules(self) -> CdiRules:
        """How CDI specifications are made and where they go."""
        return CdiRules(
            folder=self.cdi_folder,
            generator=self.cdi_generator,
            strategy=self.device_id_strategy,
            hook_path=self.nvidia_cdi_hook_path,
            feature_flags=self.cdi_feature_flags,
            disabled_hooks=self.cdi_disable_hooks,
            driver_root=self.driver_root,
            dev_root=self.host_dev_root,
            seen_driver_root=self.driver_root_ctr_path,
        )

    @property
    def xid_rules(self) -> XidRules:
        """Which XIDs make a GPU unhealthy."""
        return read_xid_rules(self.dp_disable_healthchecks, self.dp_enable_healthchecks)

    @property
    def notes(self) -> tuple[str, ...]:
        """Settings that have no effect."""
        words = self.xid_rules.malformed
        return (
            *(["mps_root has no effect: MPS is not served yet"] if self.mps_root else ()),
            *(f"{quote(word)} among the health checks has no effect: no XID" for word in words),
        )

    def check_together(self, *, is_simulated: bool) -> None:
        """Raise `SettingsError` where settings contradict each other."""
        rules = self.access_rules
        uses_nodes = rules.passes_device_nodes or rules.has_cdi
        if is_simulated and uses_nodes and self.host_dev_root == Path("/"):
            msg = (
                "settings pass_device_specs, device_list_strategy: a simulated machine has no "
                "device nodes, expected neither device specs nor CDI, or a dev_root of its own"
            )
            raise SettingsError(msg)
        is_own = self.cdi_generator is CdiGenerator.OWN
        if is_own and (self.cdi_feature_flags or self.cdi_disable_hooks):
            msg = (
                "settings cdi_feature_flags, cdi_disable_hooks are for nvidia-ctk, expected "
                "another cdi_generator than own"
            )
            raise SettingsError(msg)
