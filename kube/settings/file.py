"""A settings file: which value stands for which setting, and what has no effect.

YAML or JSON. Unknown and repeated keys are refused: a misspelt setting must not be silently
without effect. Values are not checked here (`kube.settings.load` does).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from kube.documents import read_yaml
from kube.errors import DocumentError, SettingsError
from topology.errors import ImportFormatError, file_fault, quote
from topology.model import Field

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kube.settings.fields import FileLayout

__all__ = ["FileContent", "read_file"]


@dataclass(slots=True)
class FileContent:
    """Raw values by setting, raw sections by key, `notes` of what has no effect, and its path."""

    values: dict[str, object] = field(default_factory=dict[str, object])
    raw: dict[str, object] = field(default_factory=dict[str, object])
    notes: list[str] = field(default_factory=list[str])
    path: Path | None = field(default=None, compare=False)


def read_file(path: Path, names: Mapping[str, str], layout: FileLayout) -> FileContent:
    """Read a file; `names` are the settings by their key, such as `flags.migStrategy`.

    Raises `SettingsError`, naming the file, the place, the value and what was expected.
    """
    found = FileContent(path=path)
    try:
        content = read_yaml(path.read_text(encoding="utf-8"))
        if content is not None:
            _Walk(names, layout, found).section(Field(content, "", ImportFormatError))
    except (OSError, UnicodeDecodeError, DocumentError) as error:
        msg = f"settings file {path} cannot be read: {file_fault(error)}"
        raise SettingsError(msg) from error
    except ImportFormatError as error:
        msg = f"settings file {path}: {error}"
        raise SettingsError(msg) from error
    return found


class _Walk:
    """One walk through a file."""

    def __init__(self, names: Mapping[str, str], layout: FileLayout, found: FileContent) -> None:
        self._names = names
        self._layout = layout
        self._found = found
        keys = (*names, *layout.ignored)
        self._sections = {key.rpartition(".")[0] for key in keys} - {""}
        self._sections |= {section.partition(".")[0] for section in self._sections}

    def section(self, section: Field) -> None:
        """Read all members of a section."""
        for key in section.keys():  # noqa: SIM118 - a Field is no dictionary
            member = section.need(key)
            if "." in str(key):  # it would look like a member of another section
                self._refuse(section, key)
            # Null says nothing in Go, and Helm writes such: a versioned file may hold it.
            if member.value is not None or self._layout.version is None:
                self._member(section, key, member)

    def _member(self, section: Field, key: object, member: Field) -> None:
        where, layout = member.where, self._layout
        if where in self._names:
            self._found.values[self._names[where]] = member.value
        elif where == "version" and layout.version is not None:
            if member.value not in {layout.version, ""}:
                member.fail(layout.version)
        elif where in layout.ignored:
            self._found.notes.append(f"{where} has no effect: {layout.ignored[where]}")
        elif where in layout.raw:
            self._found.raw[where] = member.value
        elif where in self._sections:
            self.section(member)
        else:
            self._refuse(section, key)

    def _refuse(self, section: Field, key: object) -> NoReturn:
        layout, place = self._layout, section.where
        known = {*self._names, *layout.ignored, *layout.raw, *self._sections}
        known |= set() if layout.version is None else {"version"}
        here = sorted(one.rpartition(".")[2] for one in known if one.rpartition(".")[0] == place)
        msg = f"{place or 'the text'} has unknown key {quote(key)}, expected one of: "
        raise ImportFormatError(msg + ", ".join(here))
