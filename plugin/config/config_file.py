"""The configuration file of NVIDIA's device plugin, with Coterie's own settings beside NVIDIA's.

What it answers: the settings that a text holds, by name, its section on sharing, and which parts
have no effect. It must never open a file or check a setting's value (`plugin.config.load_settings`
and `plugin.machine.sharing` do).

The format is `version: v1` of k8s-device-plugin v0.20.0 (api/config/v1/config.go, flags.go), YAML
or JSON. One file may serve NVIDIA's programs too: they ignore our section `coterie`, and we ignore
what is for gpu-feature-discovery alone. Unlike NVIDIA's, this reader refuses unknown and repeated
keys: a misspelt setting must not be silently without effect.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from kube.documents import read_yaml
from kube.errors import DocumentError
from plugin.errors import SettingsError
from topology.errors import ImportFormatError
from topology.model import Field

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["NOT_OURS", "OWN_SECTION", "ConfigFile", "parse_config"]

OWN_SECTION = "coterie"
NOT_OURS: Mapping[str, str] = MappingProxyType(
    {
        "flags.gfd": "for gpu-feature-discovery",
        "flags.useNodeFeatureAPI": "for gpu-feature-discovery",
        "resources": "NVIDIA's plugin ignores it too",
    }
)
"""Keys that are read over, and why."""

_VERSION = "v1"
_SHARING = "sharing"


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """What a file says: raw values by the names of our settings, the raw section `sharing`.

    `notes` tell people what has no effect.
    """

    values: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    sharing: object = None
    notes: tuple[str, ...] = ()


def parse_config(text: str, names: Mapping[str, str]) -> ConfigFile:
    """Read a file's text; `names` are our settings by their key, such as `flags.migStrategy`.

    Raises `SettingsError`, naming the place, what stands there, and what was expected.

    >>> parse_config("flags: {migStrategy: single}", {"flags.migStrategy": "mig"}).values
    {'mig': 'single'}
    """
    try:
        content = read_yaml(text)
        if content is None:
            return ConfigFile()
        root = Field(content, "", ImportFormatError)
        version = root.get("version")
        if version is not None and version.value not in {_VERSION, None, ""}:
            version.fail(_VERSION)
        reading = _Reading(names)
        reading.walk(root)
    except (DocumentError, ImportFormatError) as error:
        raise SettingsError(str(error)) from error
    return ConfigFile(reading.values, reading.sharing, tuple(reading.notes))


class _Reading:
    """One walk through a file, and what it has found so far."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        known = (*names, *NOT_OURS)
        self._sections = {key.rpartition(".")[0] for key in known} | {"flags", ""}
        self.values: dict[str, object] = {}
        self.sharing: object = None
        self.notes: list[str] = []

    def walk(self, section: Field) -> None:
        """Read all members of a section."""
        for key in section.keys():  # noqa: SIM118 - a Field is no dictionary
            member = section.need(key)
            if "." in str(key):  # it would look like a member of another section
                member.fail("no such key")
            if member.value is not None and member.where != "version":  # null says nothing in Go
                self._member(member)

    def _member(self, member: Field) -> None:
        where = member.where
        if where in self._names:
            self.values[self._names[where]] = member.value
        elif where in NOT_OURS:
            self.notes.append(f"{where} has no effect: {NOT_OURS[where]}")
        elif where == _SHARING:
            self.sharing = member.value
        elif where in self._sections:
            self.walk(member)
        else:
            member.fail("no such key")
