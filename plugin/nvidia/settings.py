"""The settings that NVIDIA's device plugin has too, under its names and with its meaning.

Each with its names in the environment and in NVIDIA's file, and how it compares with NVIDIA's, from
which docs/plugin.md is generated; at the end those about CDI that NVIDIA's plugin lacks.

Names and defaults are those of k8s-device-plugin v0.20.0: cmd/nvidia-device-plugin/main.go,
api/config/v1/consts.go, flags.go and imex.go, internal/rm/health.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from kube.errors import SettingsError
from kube.settings import OtherNames, ProgramSettings
from plugin.machine import SharedPolicy
from plugin.nvidia.container.allocate_response import AccessRules, ListStrategy
from plugin.nvidia.container.cdi import CDI_ANNOTATION_PREFIX
from plugin.nvidia.container.cdi_files import (
    DEFAULT_FOLDER,
    DEFAULT_TOOLKIT,
    CdiGenerator,
    CdiRules,
)
from plugin.nvidia.container.device_nodes import Extra, IdStrategy
from plugin.nvidia.container.nvidia_ctk import CtkOptions
from plugin.nvidia.mig_strategy import MigStrategy
from plugin.nvidia.sharing import SHARING
from plugin.nvidia.xids import XidRules, read_xid_rules
from topology.errors import quote

__all__ = ["SAME", "NvidiaNames", "NvidiaSettings"]

_KUBELET_SOCKET = "/var/lib/kubelet/device-plugins/kubelet.sock"
"""(k8s.io/kubelet v0.36.3, pkg/apis/deviceplugin/v1beta1/constants.go, `KubeletSocket`)."""

SAME = "same"
_WITH_TOOL = "same, and needs `nvidia-ctk`"
_ALSO_FLAG = "also a flag and a key; `all` beside enabled XIDs differs, see below"


@dataclass(frozen=True, slots=True)
class NvidiaNames(OtherNames):
    """NVIDIA's names of a setting; `state` compares ours with NVIDIA's."""

    state: str = SAME


class NvidiaSettings(ProgramSettings):
    """See each field. Fields without a key in NVIDIA's file have one in our section of it."""

    IGNORED_KEYS: ClassVar = MappingProxyType(
        {
            "flags.gfd": "for gpu-feature-discovery",
            "flags.useNodeFeatureAPI": "for gpu-feature-discovery",
            "resources": "NVIDIA's plugin ignores it too",
        }
    )
    """Keys of NVIDIA's file that are skipped, and why."""
    RAW_KEYS: ClassVar = frozenset({SHARING})
    """Sections of the file for `Vendor.read_sharing`."""
    SERVING_ONLY: ClassVar = frozenset(
        {
            *("device_list_strategy", "device_id_strategy", "pass_device_specs"),
            *("gdrcopy_enabled", "gds_enabled", "mofed_enabled", "imex_channel_ids"),
            *("imex_required", "cdi_annotation_prefix", "cdi_feature_flags", "cdi_disable_hooks"),
            *("cdi_generator", "cdi_folder", "toolkit_folder", "nvidia_cdi_hook_path"),
            "shared_devices_allocation_policy",
        }
    )
    """Settings that have no effect where no device is served."""

    mig_strategy: Annotated[MigStrategy, NvidiaNames(("MIG_STRATEGY",), "flags.migStrategy")] = (
        MigStrategy.NONE
    )
    """Whether MIG instances are offered, as GPUs or by profile."""
    fail_on_init_error: Annotated[
        bool,
        NvidiaNames(
            ("FAIL_ON_INIT_ERROR",), "flags.failOnInitError", state="`false` differs, see below"
        ),
    ] = True
    """Whether to exit where NVML cannot be started; else try again every 30 s."""
    driver_root: Annotated[
        Path,
        NvidiaNames(("NVIDIA_DRIVER_ROOT",), "flags.nvidiaDriverRoot", ("nvidia-driver-root",)),
    ] = Path("/")
    """Root of the driver's files on the host."""
    dev_root: Annotated[
        Path | None, NvidiaNames(("NVIDIA_DEV_ROOT",), "flags.nvidiaDevRoot", ("nvidia-dev-root",))
    ] = None
    """Root of the device nodes on the host; by default `driver_root`."""
    driver_root_ctr_path: Annotated[
        Path,
        NvidiaNames(
            ("DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT"),
            "flags.plugin.containerDriverRoot",
            ("container-driver-root",),
        ),
    ] = Path("/driver-root")
    """Where the plugin's own container sees `driver_root`; libnvidia-ml.so.1 is searched there
    first."""
    pass_device_specs: Annotated[
        bool, NvidiaNames(("PASS_DEVICE_SPECS",), "flags.plugin.passDeviceSpecs")
    ] = False
    """Whether containers are given device nodes through the kubelet, as CPUManager needs. The
    plugin must see the host's /dev."""
    device_list_strategy: Annotated[
        tuple[ListStrategy, ...],
        NvidiaNames(("DEVICE_LIST_STRATEGY",), "flags.plugin.deviceListStrategy"),
    ] = Field(default=(ListStrategy.ENVVAR,), min_length=1)
    """How a container's devices are passed to its runtime; several ways are separated by commas."""
    device_id_strategy: Annotated[
        IdStrategy, NvidiaNames(("DEVICE_ID_STRATEGY",), "flags.plugin.deviceIDStrategy")
    ] = IdStrategy.UUID
    """By which name a device is passed to the runtime."""
    gdrcopy_enabled: Annotated[bool, NvidiaNames(("GDRCOPY_ENABLED",), "flags.gdrcopyEnabled")] = (
        False
    )
    """Whether containers with GPUs get GDRCopy."""
    gds_enabled: Annotated[bool, NvidiaNames(("GDS_ENABLED",), "flags.gdsEnabled")] = False
    """Whether containers with GPUs get GPUDirect Storage."""
    mofed_enabled: Annotated[bool, NvidiaNames(("MOFED_ENABLED",), "flags.mofedEnabled")] = False
    """Whether containers with GPUs get the RDMA devices of MOFED."""
    kubelet_socket: Annotated[
        str, NvidiaNames(("KUBELET_SOCKET",), state="same, and also a key of the file")
    ] = Field(default=_KUBELET_SOCKET, pattern=r"^(/.+)?$")
    """The kubelet's registration socket, an absolute path; the plugin's own sockets lie beside it.
    Empty: serve, and register nowhere."""
    cdi_annotation_prefix: Annotated[
        str, NvidiaNames(("CDI_ANNOTATION_PREFIX",), "flags.plugin.cdiAnnotationPrefix")
    ] = Field(default=CDI_ANNOTATION_PREFIX, pattern=r"^[a-z0-9.-]{1,253}/$")
    """Prefix of the annotation by which `cdi-annotations` names devices."""
    nvidia_cdi_hook_path: Annotated[
        str,
        NvidiaNames(
            ("NVIDIA_CDI_HOOK_PATH", "NVIDIA_CTK_PATH"),
            "flags.plugin.nvidiaCTKPath",
            ("nvidia-ctk-path",),
            _WITH_TOOL,
        ),
    ] = Field(default="/usr/bin/nvidia-ctk", min_length=1)
    """Path on the host of the program that CDI specifications name as hook."""
    cdi_feature_flags: Annotated[
        tuple[str, ...], NvidiaNames(("CDI_FEATURE_FLAGS",), state=_WITH_TOOL)
    ] = ()
    """Feature flags for generating CDI specifications, comma-separated."""
    cdi_disable_hooks: Annotated[
        tuple[str, ...], NvidiaNames(("CDI_DISABLE_HOOKS",), state=_WITH_TOOL)
    ] = ()
    """Hooks that CDI specifications leave out, comma-separated."""
    device_discovery_strategy: Annotated[
        Literal["auto", "nvml"],
        NvidiaNames(
            ("DEVICE_DISCOVERY_STRATEGY",),
            "flags.deviceDiscoveryStrategy",
            state="`auto` and `nvml` the same, `tegra` refused",
        ),
    ] = "auto"
    """How GPUs are found; both are NVML. Tegra has no NVML and is refused."""
    imex_channel_ids: Annotated[
        tuple[int, ...], NvidiaNames(("IMEX_CHANNEL_IDS",), "imex.channelIDs")
    ] = ()
    """IMEX channels that containers with GPUs get: none, or 0."""
    imex_required: Annotated[bool, NvidiaNames(("IMEX_REQUIRED",), "imex.required")] = False
    """Whether to exit where such a channel has no device node; else containers go without."""
    shared_devices_allocation_policy: Annotated[
        SharedPolicy,
        NvidiaNames(
            ("SHARED_DEVICES_ALLOCATION_POLICY",),
            "flags.plugin.sharedDevicesAllocationPolicy",
            state="same for one replica; several are of as many GPUs as can be",
        ),
    ] = SharedPolicy.DISTRIBUTED
    """Whether replicas of the least used GPUs are allocated first, or of the most used."""
    mps_root: Annotated[
        str,
        NvidiaNames(
            ("MPS_ROOT",), "flags.mpsRoot", state="no effect: MPS (`sharing.mps`) is refused"
        ),
    ] = ""
    """Folder of MPS control daemons; NVIDIA's chart sets it without MPS too."""
    dp_disable_healthchecks: Annotated[
        str, NvidiaNames(("DP_DISABLE_HEALTHCHECKS",), state=_ALSO_FLAG)
    ] = ""
    """`all`, or XIDs that leave a GPU healthy, comma-separated."""
    dp_enable_healthchecks: Annotated[
        str, NvidiaNames(("DP_ENABLE_HEALTHCHECKS",), state=_ALSO_FLAG)
    ] = ""
    """`all`, or XIDs that count whatever the other settings, comma-separated."""
    cdi_generator: CdiGenerator = CdiGenerator.AUTO
    """Who makes CDI specifications: `nvidia-ctk`, the plugin itself (`own`: device nodes only), or
    `nvidia-ctk` where it is in PATH or `toolkit_folder` (`auto`)."""
    cdi_folder: Path = DEFAULT_FOLDER
    """Folder of CDI specifications. The one that NVIDIA's plugin writes to."""
    toolkit_folder: Path = DEFAULT_TOOLKIT
    """Where the plugin's container sees the host's NVIDIA Container Toolkit: `nvidia-ctk` is run
    from there where it is not in PATH. The GPU operator installs it in the default folder."""

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
            options=CtkOptions(
                hook_path=self.nvidia_cdi_hook_path,
                strategy=self.device_id_strategy,
                feature_flags=self.cdi_feature_flags,
                disabled_hooks=self.cdi_disable_hooks,
            ),
            driver_root=self.driver_root,
            dev_root=self.host_dev_root,
            seen_driver_root=self.driver_root_ctr_path,
            toolkit=self.toolkit_folder,
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
