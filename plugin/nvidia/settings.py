"""The settings that NVIDIA's device plugin has too, under its names and with its meaning.

What it answers: what each is called on the command line, in the environment and in NVIDIA's file,
what it may be, and how ours compares with NVIDIA's. The last is what docs/plugin.md shows. It must
never read any of these places (`plugin.config.settings` does).

Names and defaults are those of k8s-device-plugin v0.20.0: cmd/nvidia-device-plugin/main.go,
api/config/v1/consts.go, flags.go and imex.go, internal/rm/health.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from plugin.machine import MigStrategy, SharedPolicy
from plugin.nvidia.container.allocate_response import ListStrategy
from plugin.nvidia.container.cdi import CDI_ANNOTATION_PREFIX
from plugin.nvidia.container.device_nodes import IdStrategy

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["KUBELET_SOCKET", "SAME", "NvidiaSettings", "OtherNames"]

KUBELET_SOCKET = "/var/lib/kubelet/device-plugins/kubelet.sock"
"""(k8s.io/kubelet v0.36.3, pkg/apis/deviceplugin/v1beta1/constants.go, `KubeletSocket`)."""
SAME = "same"
_WITH_TOOL = "same, and needs `nvidia-ctk`"
_ALSO_FILE = "same, and also a key of the file"


@dataclass(frozen=True, slots=True)
class OtherNames:
    """What a setting is called beside its own name; `key` is its place in NVIDIA's file.

    Of several variables the first that is set counts. `state` says how ours compares with NVIDIA's.
    """

    env: tuple[str, ...]
    key: str | None = None
    flags: tuple[str, ...] = ()
    state: str = SAME


class NvidiaSettings(BaseModel):
    """See each field. Fields without a key in NVIDIA's file have one in our section of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mig_strategy: Annotated[
        MigStrategy,
        OtherNames(("MIG_STRATEGY",), "flags.migStrategy"),
        Field(description="Whether MIG instances are offered, as GPUs or by profile."),
    ] = MigStrategy.NONE
    fail_on_init_error: Annotated[
        bool,
        OtherNames(("FAIL_ON_INIT_ERROR",), "flags.failOnInitError"),
        Field(
            description="Whether to end where NVML cannot be started; else wait for ever, as on "
            "nodes without GPUs."
        ),
    ] = True
    driver_root: Annotated[
        Path,
        OtherNames(
            ("NVIDIA_DRIVER_ROOT",), "flags.nvidiaDriverRoot", flags=("nvidia-driver-root",)
        ),
        Field(description="Root of the driver's files on the host."),
    ] = Path("/")
    dev_root: Annotated[
        Path | None,
        OtherNames(("NVIDIA_DEV_ROOT",), "flags.nvidiaDevRoot", flags=("nvidia-dev-root",)),
        Field(description="Root of the device nodes on the host; by default `driver_root`."),
    ] = None
    driver_root_ctr_path: Annotated[
        Path,
        OtherNames(
            ("DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT"),
            "flags.plugin.containerDriverRoot",
            flags=("container-driver-root",),
        ),
        Field(
            description="Where the plugin's own container sees `driver_root`; libnvidia-ml.so.1 is "
            "looked for there first."
        ),
    ] = Path("/driver-root")
    pass_device_specs: Annotated[
        bool,
        OtherNames(("PASS_DEVICE_SPECS",), "flags.plugin.passDeviceSpecs"),
        Field(
            description="Whether containers are given device nodes through the kubelet, as "
            "CPUManager needs. The plugin must see the host's /dev."
        ),
    ] = False
    device_list_strategy: Annotated[
        tuple[ListStrategy, ...],
        OtherNames(("DEVICE_LIST_STRATEGY",), "flags.plugin.deviceListStrategy"),
        Field(
            min_length=1,
            description="How a container's runtime is told its devices, comma-separated where in "
            "several ways at once.",
        ),
    ] = (ListStrategy.ENVVAR,)
    device_id_strategy: Annotated[
        IdStrategy,
        OtherNames(("DEVICE_ID_STRATEGY",), "flags.plugin.deviceIDStrategy"),
        Field(description="By which name the runtime is told a device."),
    ] = IdStrategy.UUID
    gdrcopy_enabled: Annotated[
        bool,
        OtherNames(("GDRCOPY_ENABLED",), "flags.gdrcopyEnabled"),
        Field(description="Whether containers with GPUs get GDRCopy."),
    ] = False
    gds_enabled: Annotated[
        bool,
        OtherNames(("GDS_ENABLED",), "flags.gdsEnabled"),
        Field(description="Whether containers with GPUs get GPUDirect Storage."),
    ] = False
    mofed_enabled: Annotated[
        bool,
        OtherNames(("MOFED_ENABLED",), "flags.mofedEnabled"),
        Field(description="Whether containers with GPUs get the RDMA devices of MOFED."),
    ] = False
    kubelet_socket: Annotated[
        str,
        OtherNames(("KUBELET_SOCKET",), state=_ALSO_FILE),
        Field(
            pattern=r"^(/.+)?$",
            description="The kubelet's registration socket, an absolute path; the plugin's own "
            "sockets lie beside it. Empty: serve, and register nowhere.",
        ),
    ] = KUBELET_SOCKET
    cdi_annotation_prefix: Annotated[
        str,
        OtherNames(("CDI_ANNOTATION_PREFIX",), "flags.plugin.cdiAnnotationPrefix"),
        Field(
            pattern=r"^[a-z0-9.-]{1,253}/$",
            description="Prefix of the annotation by which `cdi-annotations` names devices.",
        ),
    ] = CDI_ANNOTATION_PREFIX
    nvidia_cdi_hook_path: Annotated[
        str,
        OtherNames(
            ("NVIDIA_CDI_HOOK_PATH", "NVIDIA_CTK_PATH"),
            "flags.plugin.nvidiaCTKPath",
            flags=("nvidia-ctk-path",),
            state=_WITH_TOOL,
        ),
        Field(
            min_length=1,
            description="Path on the host of the program that CDI specifications name as hook.",
        ),
    ] = "/usr/bin/nvidia-ctk"
    cdi_feature_flags: Annotated[
        tuple[str, ...],
        OtherNames(("CDI_FEATURE_FLAGS",), state=_WITH_TOOL),
        Field(description="Feature flags of the making of CDI specifications, comma-separated."),
    ] = ()
    cdi_disable_hooks: Annotated[
        tuple[str, ...],
        OtherNames(("CDI_DISABLE_HOOKS",), state=_WITH_TOOL),
        Field(description="Hooks that CDI specifications are to leave out, comma-separated."),
    ] = ()
    device_discovery_strategy: Annotated[
        Literal["auto", "nvml"],
        OtherNames(
            ("DEVICE_DISCOVERY_STRATEGY",),
            "flags.deviceDiscoveryStrategy",
            state="`auto` and `nvml` the same, `tegra` refused",
        ),
        Field(description="How GPUs are found; both are NVML. Tegra has no NVML and is refused."),
    ] = "auto"
    imex_channel_ids: Annotated[
        tuple[int, ...],
        OtherNames(("IMEX_CHANNEL_IDS",), "imex.channelIDs"),
        Field(description="IMEX channels that containers with GPUs get: none, or 0."),
    ] = ()
    imex_required: Annotated[
        bool,
        OtherNames(("IMEX_REQUIRED",), "imex.required"),
        Field(
            description="Whether to end where such a channel has no device node; else containers "
            "go without."
        ),
    ] = False
    shared_devices_allocation_policy: Annotated[
        SharedPolicy,
        OtherNames(
            ("SHARED_DEVICES_ALLOCATION_POLICY",), "flags.plugin.sharedDevicesAllocationPolicy"
        ),
        Field(description="Which replicas go first: of GPUs in little use, or in much."),
    ] = SharedPolicy.DISTRIBUTED
    mps_root: Annotated[
        str,
        OtherNames(
            ("MPS_ROOT",), "flags.mpsRoot", state="no effect: MPS (`sharing.mps`) is refused"
        ),
        Field(description="Folder of MPS control daemons; NVIDIA's chart sets it without MPS too."),
    ] = ""
    dp_disable_healthchecks: Annotated[
        str,
        OtherNames(("DP_DISABLE_HEALTHCHECKS",), state="same, and also a flag and a key"),
        Field(description="`all`, or XIDs that leave a GPU healthy, comma-separated."),
    ] = ""
    dp_enable_healthchecks: Annotated[
        str,
        OtherNames(("DP_ENABLE_HEALTHCHECKS",), state="same, and also a flag and a key"),
        Field(description="`all`, or XIDs that count in spite of all else, comma-separated."),
    ] = ""

    @field_validator("*", mode="before")
    @classmethod
    def _is_truth_value_only_where_meant(cls, value: object, info: ValidationInfo) -> object:
        """YAML reads `yes` and `on` as true, and pydantic would take true for the number 1."""
        field = cls.model_fields[info.field_name or ""]
        if field.annotation is not bool and any(isinstance(part, bool) for part in _parts(value)):
            msg = "expected no truth value (YAML reads true, yes and on as one)"
            raise ValueError(msg)  # what pydantic turns into its own error
        return value

    @field_validator(
        *("device_list_strategy", "cdi_feature_flags", "cdi_disable_hooks", "imex_channel_ids"),
        mode="before",
    )
    @classmethod
    def _split(cls, value: object) -> object:
        """A list may be one text; nothing between commas is nothing."""
        parts = _parts(value)
        words = [w.strip() for p in parts if isinstance(p, str) for w in p.split(",")]
        others = [part for part in parts if not isinstance(part, str)]
        return (*(word for word in words if word), *others)

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


def _parts(value: object) -> Sequence[object]:
    """The members of a list, or the one value that stands in its place."""
    return cast("Sequence[object]", value) if isinstance(value, list | tuple) else [value]
