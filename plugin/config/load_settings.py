"""How the plugin's settings are put together: flag over environment over file over default.

What it answers: the effective settings, checked each by itself and beside the others, or one
sentence of what is wrong. What NVIDIA's plugin has too is called as there; the rest is
`COTERIE_PLUGIN_*`, `--name`, or a key of section `coterie` in the file. Unknown keys of the file
and unknown `COTERIE_PLUGIN_*` variables stop the start: a misspelt setting must not be silently
without effect.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from kube.documents import first_fault
from plugin.config.config_file import OWN_SECTION, ConfigFile, parse_config
from plugin.config.settings import ENV_PREFIX, Mode, Settings
from plugin.errors import SettingsError
from plugin.machine import read_sharing
from plugin.nvidia.container.cdi_files import CdiGenerator
from plugin.nvidia.settings import NvidiaSettings, OtherNames
from topology.errors import quote

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from plugin.machine import TimeSlicing

__all__ = ["CONFIG_FLAG", "CONFIG_VARIABLE", "LoadedSettings", "load_settings", "other_names"]

CONFIG_FLAG = "config_file"
CONFIG_VARIABLE = "CONFIG_FILE"
"""Name the file, as NVIDIA's plugin has them; no setting themselves."""

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

    settings: Settings
    sharing: TimeSlicing
    notes: tuple[str, ...] = ()


def other_names(name: str) -> OtherNames:
    """What a setting is called in the environment and in the file, in full."""
    given = next(
        (m for m in Settings.model_fields[name].metadata if isinstance(m, OtherNames)), None
    )
    if name in NvidiaSettings.model_fields and given is not None:
        return OtherNames(given.env, given.key or f"{OWN_SECTION}.{name}", given.flags, given.state)
    env = () if given is None else given.env
    return OtherNames((f"{ENV_PREFIX}{name.upper()}", *env), f"{OWN_SECTION}.{name}")


def load_settings(
    flags: Mapping[str, object], environ: Mapping[str, str] | None = None
) -> LoadedSettings:
    """Put the effective settings together; `flags` holds only those that were given.

    Among them may be `CONFIG_FLAG`, the file's path. Raises `SettingsError`, naming the setting,
    where it comes from, its value and what was expected.
    """
    environ = os.environ if environ is None else environ
    _check_environment(environ)
    names = {name: other_names(name) for name in Settings.model_fields}
    path = flags.get(CONFIG_FLAG, environ.get(CONFIG_VARIABLE)) or None
    file = ConfigFile() if path is None else _read_file(Path(str(path)), names)
    found = {name: (value, f"file, {names[name].key}") for name, value in file.values.items()}
    for name, other in names.items():
        variable = next((variable for variable in other.env if variable in environ), None)
        if variable is not None:
            found[name] = (environ[variable], f"environment, {variable}")
    for name, value in flags.items():
        if name != CONFIG_FLAG:
            found[name] = (value, f"flag, --{name.replace('_', '-')}")
    origins = {name: origin for name, (_, origin) in found.items()}
    try:
        settings = Settings.model_validate({name: value for name, (value, _) in found.items()})
    except ValidationError as error:
        msg = f"setting {first_fault(error, whole='values', origins=origins)}"
        raise SettingsError(msg) from error
    from_file = {name for name, origin in origins.items() if origin.startswith("file")}
    _check_together(settings, by_hand=origins.keys() - from_file)
    sharing = read_sharing(file.sharing, domain=settings.resource_name.partition("/")[0])
    notes = (*file.notes, *sharing.notes, *_notes(settings, from_file))
    return LoadedSettings(settings, sharing, notes)


def _check_environment(environ: Mapping[str, str]) -> None:
    own = {name for name in Settings.model_fields if name not in NvidiaSettings.model_fields}
    known = {f"{ENV_PREFIX}{name.upper()}" for name in own}
    for variable in sorted(environ):
        if variable.startswith(ENV_PREFIX) and variable not in known:
            expected = ", ".join(sorted(known))
            msg = f"environment variable {variable} is no setting, expected one of: {expected}"
            raise SettingsError(msg)


def _read_file(path: Path, names: Mapping[str, OtherNames]) -> ConfigFile:
    keys = {other.key: name for name, other in names.items() if other.key is not None}
    try:
        return parse_config(path.read_text(encoding="utf-8"), keys)
    except (OSError, UnicodeDecodeError) as error:
        msg = f"settings file {path} cannot be read: {error}"
        raise SettingsError(msg) from error
    except SettingsError as error:
        msg = f"settings file {path}: {error}"
        raise SettingsError(msg) from error


def _check_together(settings: Settings, by_hand: Collection[str]) -> None:
    """Refuse settings of which each is fine, but not beside the others."""
    s = settings
    unserved = sorted(_TO_SERVE & set(by_hand)) if s.mode is Mode.REPORTER else []
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


def _notes(settings: Settings, from_file: Collection[str]) -> tuple[str, ...]:
    unserved = sorted(_TO_SERVE & set(from_file)) if settings.mode is Mode.REPORTER else []
    malformed = settings.xid_rules.malformed
    return (
        *(["mps_root has no effect: MPS is not served yet"] if settings.mps_root else ()),
        *(f"{name} of the file has no effect in mode {settings.mode.value}" for name in unserved),
        *(f"{quote(word)} among the health checks has no effect: no XID" for word in malformed),
    )
