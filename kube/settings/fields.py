"""A program's settings as a class: how values are read, and what each field is called where.

A field `log_level` is the flag `--log-level`, the variable `<PREFIX>LOG_LEVEL` and the key
`log_level` of the file, unless its `OtherNames` say otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, cast, get_origin

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic.fields import FieldInfo

__all__ = ["FieldNames", "FileLayout", "OtherNames", "ProgramSettings", "is_list", "names_of"]

_TRUTH = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
"""(Go's strconv.ParseBool.)"""


@dataclass(frozen=True, slots=True)
class OtherNames:
    """Variables and `key` of the file (dotted) in place of the usual ones, and further `flags`."""

    env: tuple[str, ...] = ()
    key: str | None = None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FieldNames:
    """All names of a field: `flags` with their dashes; of several variables the first set counts.

    `key` is the dotted place in the file.
    """

    flags: tuple[str, ...]
    env: tuple[str, ...]
    key: str


@dataclass(frozen=True, slots=True)
class FileLayout:
    """What a program's file holds beside its settings, and how the file is named.

    `flag` and `variable` name the file; `prefix` begins the program's variables; `section` is where
    fields without a key of their own are; `version`, if any, is what the key `version` must say;
    keys of `ignored` are skipped with a note (key: why); the value under a key of `raw` is passed
    through unchanged.
    """

    flag: str
    variable: str
    prefix: str
    section: str = ""
    version: str | None = None
    ignored: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    raw: frozenset[str] = frozenset()


class ProgramSettings(BaseModel):
    """Base of both programs' settings; `load_fields` takes the values from where they are given.

    A list may be one text with commas; true and false are taken by boolean fields only. The text
    below a field is its description.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
    layout: ClassVar[FileLayout]

    @field_validator("*", mode="before")
    @classmethod
    def _read_value(cls, value: object, info: ValidationInfo) -> object:
        declared = cls.model_fields[info.field_name or ""]
        parts = _parts(value)
        if declared.annotation is bool and isinstance(value, str):
            return _truth(value)
        # pydantic would take true for the number 1
        if declared.annotation is not bool and any(isinstance(part, bool) for part in parts):
            msg = "expected no truth value (YAML reads true, yes and on as one)"
            raise ValueError(msg)
        if not is_list(declared):
            return value
        split = (p.split(",") if isinstance(p, str) else [p] for p in parts)
        words = [w.strip() if isinstance(w, str) else w for part in split for w in part]
        return tuple(word for word in words if word != "")


def _truth(text: str) -> bool:
    """As Go's programs, NVIDIA's plugin among them, read flags and variables."""
    if text not in _TRUTH:
        msg = "expected true or false"
        raise ValueError(msg)
    return _TRUTH[text]


def is_list(declared: FieldInfo) -> bool:
    """Whether a field holds several values: its flag may be repeated."""
    return get_origin(declared.annotation) is tuple


def names_of(model: type[ProgramSettings]) -> Mapping[str, FieldNames]:
    """All names of each field, by field, in the order of the class."""
    return MappingProxyType({n: _names(model, n, f) for n, f in model.model_fields.items()})


def _names(model: type[ProgramSettings], name: str, declared: FieldInfo) -> FieldNames:
    other = next((one for one in declared.metadata if isinstance(one, OtherNames)), OtherNames())
    layout = model.layout
    return FieldNames(
        flags=tuple(f"--{flag}" for flag in (name.replace("_", "-"), *other.flags)),
        env=other.env or (f"{layout.prefix}{name}".upper(),),
        key=other.key or (f"{layout.section}.{name}" if layout.section else name),
    )


def _parts(value: object) -> Sequence[object]:
    """The members of a list, or the one value in its place."""
    return cast("Sequence[object]", value) if isinstance(value, list | tuple) else [value]
