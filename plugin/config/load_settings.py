"""The plugin's effective settings: flag over environment over file over default.

What it answers: the settings, checked each by itself and beside the others, or one sentence of
what is wrong. What NVIDIA's plugin has too is called as there; the rest is `COTERIE_PLUGIN_*`,
`--name`, or a key of section `coterie` in the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kube.errors import SettingsError
from kube.settings import load_fields
from plugin.config.settings import SHARING, Mode, PluginSettings
from plugin.machine import read_sharing
from plugin.nvidia.container.cdi_files import CdiGenerator
from topology.errors import quote

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from plugin.machine import TimeSlicing

__all__ = ["LoadedSettings", "load_settings"]

_TO_SERVE = frozenset(
    {
        *("device_list_strategy", "device_id_strategy", "pass_device_specs"),
        *("gdrcopy_enabled", "gds_enabled", "mofed_enabled", "imex_channel_ids", "imex_required"),
        *("cdi_annotation_prefix", "cdi_feature_flags", "cdi_disable_hooks", "cdi_generator"),
        *("cdi_folder", "nvidia_cdi_hook_path", "shared_devices_allocation_policy"),
    }
)
"""Settings of what a reporter does not do."""


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings, and what a file may hold beside them; `notes` tell what has no effect."""

    settings: PluginSettings
    sharing: TimeSlicing
    notes: tuple[str, ...] = ()


def load_settings(
    flags: Mapping[str, object], environ: Mapping[str, str] | None = None
) -> LoadedSettings:
    """Put the effective settings together; `flags` holds only those that were given.

    Among them may be `config_file`. Raises `SettingsError`, naming the setting, where it comes
    from, its value and what was expected.
    """
    loaded = load_fields(PluginSettings, flags, environ)
    settings, file = loaded.settings, loaded.file
    _check_together(settings, loaded.by_hand)
    domain = settings.resource_name.partition("/")[0]
    sharing = read_sharing(file.raw.get(SHARING), domain=domain)
    from_file = file.values.keys() - loaded.by_hand
    notes = (*file.notes, *sharing.notes, *_notes(settings, from_file))
    return LoadedSettings(settings, sharing, notes)


def _check_together(settings: PluginSettings, by_hand: AbstractSet[str]) -> None:
    """Refuse settings of which each is fine, but not beside the others."""
    s = settings
    unserved = sorted(_TO_SERVE & by_hand) if s.mode is Mode.REPORTER else []
    rules = s.access_rules
    is_own = s.cdi_generator is CdiGenerator.OWN
    for is_wrong, msg in (
        (
            unserved,
            (
                f"settings {', '.join(unserved)}: expected none of them in mode {s.mode.value}, "
                "which serves no device"
            ),
        ),
        (
            s.simulate is None and s.simulate_faults is not None,
            "setting simulate_faults is for a simulated machine, expected `simulate` beside it",
        ),
        (
            s.simulate is not None
            and (rules.passes_device_nodes or rules.has_cdi)
            and s.host_dev_root == Path("/"),
            (
                "settings pass_device_specs, device_list_strategy: a simulated machine has no "
                "device nodes, expected neither device specs nor CDI, or a dev_root of its own"
            ),
        ),
        (
            s.kubelet_insecure and (s.kubelet_ca or s.kubelet_server_name),
            (
                "setting kubelet_insecure takes any certificate, expected neither kubelet_ca nor "
                "kubelet_server_name beside it"
            ),
        ),
        (
            s.topology_manager_scope is not None and s.topology_manager_policy is None,
            "setting topology_manager_scope: expected topology_manager_policy beside it",
        ),
        (
            is_own and (s.cdi_feature_flags or s.cdi_disable_hooks),
            (
                "settings cdi_feature_flags, cdi_disable_hooks are for nvidia-ctk, expected "
                "another cdi_generator than own"
            ),
        ),
    ):
        if is_wrong:
            raise SettingsError(msg)


def _notes(settings: PluginSettings, from_file: AbstractSet[str]) -> tuple[str, ...]:
    unserved = sorted(_TO_SERVE & from_file) if settings.mode is Mode.REPORTER else []
    malformed = settings.xid_rules.malformed
    return (
        *(["mps_root has no effect: MPS is not served yet"] if settings.mps_root else ()),
        *(f"{name} of the file has no effect in mode {settings.mode.value}" for name in unserved),
        *(f"{quote(word)} among the health checks has no effect: no XID" for word in malformed),
    )
