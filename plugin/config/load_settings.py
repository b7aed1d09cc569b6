"""The plugin's effective settings: flag over environment over file over default.

They are checked each by itself and beside the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kube.errors import SettingsError
from kube.settings import load_fields
from plugin.config.settings import Mode, PluginSettings
from plugin.vendor import VENDOR

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from plugin.machine import TimeSlicing

__all__ = ["LoadedSettings", "load_settings"]


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings, and what a file may hold beside them; `notes` name what has no effect."""

    settings: PluginSettings
    sharing: TimeSlicing
    notes: tuple[str, ...] = ()


def load_settings(
    flags: Mapping[str, object], environ: Mapping[str, str] | None = None
) -> LoadedSettings:
    """As `kube.settings.load_fields`. Raises `SettingsError`."""
    loaded = load_fields(PluginSettings, flags, environ)
    settings, file = loaded.settings, loaded.file
    _check_together(settings, loaded.by_hand)
    domain = settings.resource_name.partition("/")[0]
    try:
        sharing = VENDOR.read_sharing(file.raw, domain)
    except SettingsError as error:
        msg = f"settings file {file.path}: {error}"
        raise SettingsError(msg) from error
    from_file = file.values.keys() - loaded.by_hand
    notes = (*file.notes, *sharing.notes, *_notes(settings, from_file))
    return LoadedSettings(settings, sharing, notes)


def _check_together(settings: PluginSettings, by_hand: AbstractSet[str]) -> None:
    """Refuse settings of which each is fine, but not beside the others."""
    s = settings
    unserved = sorted(s.SERVING_ONLY & by_hand) if s.mode is Mode.REPORTER else []
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
    ):
        if is_wrong:
            raise SettingsError(msg)
    s.check_together(is_simulated=s.simulate is not None)


def _notes(settings: PluginSettings, from_file: AbstractSet[str]) -> tuple[str, ...]:
    unserved = sorted(settings.SERVING_ONLY & from_file) if settings.mode is Mode.REPORTER else []
    return (
        *settings.notes,
        *(f"{name} of the file has no effect in mode {settings.mode.value}" for name in unserved),
    )
