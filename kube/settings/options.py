"""Command-line options, made from the fields of the settings; values are checked with the others.

Why not by pydantic-settings: docs/adr/0015-one-way-to-configure.md.
"""

from __future__ import annotations

import argparse
import re
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Literal, cast, get_args, get_origin

from pydantic_core import PydanticUndefined

from kube.settings.fields import is_list, names_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kube.settings.fields import ProgramSettings

__all__ = ["add_options", "given_settings", "go_booleans"]

_SENTENCE = re.compile(r"(?<=[^.])\.(?= |$)")
"""The end of a description's first sentence; the whole is in the documentation."""
_KINDS = {bool: "BOOL", int: "NUMBER", float: "NUMBER", Path: "PATH"}


def add_options(
    parser: argparse.ArgumentParser,
    model: type[ProgramSettings],
    only: Collection[str] | None = None,
) -> None:
    """Add an option for the file and one for each setting, or for those of `only`."""
    group = parser.add_argument_group("settings")
    layout = model.layout
    group.add_argument(
        f"--{layout.flag.replace('_', '-')}",
        dest=layout.flag,
        default=argparse.SUPPRESS,
        metavar="FILE",
        help=f"Settings file (YAML); else {layout.variable} names it.",
    )
    for name, names in names_of(model).items():
        if only is None or name in only:
            field = model.model_fields[name]
            first = _SENTENCE.split(" ".join((field.description or "").split()))[0]
            group.add_argument(
                *names.flags,
                dest=name,
                default=argparse.SUPPRESS,
                metavar=_metavar(field.annotation),
                action="append" if is_list(field) else "store",
                help=f"{first}{_default(field.default)}.".replace("%", "%%"),
            )


def _metavar(annotation: object) -> str:
    """What an option takes: its choices, where they are a closed set."""
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return "|".join(_text(one) for one in annotation)
    if get_origin(annotation) is Literal:
        return "|".join(map(_text, get_args(annotation)))
    if get_origin(annotation) is tuple:
        return f"{_metavar(get_args(annotation)[0])}[,...]"
    inner = [one for one in get_args(annotation) if one is not NoneType]
    if len(inner) == 1:  # X | None
        return _metavar(inner[0])
    return _KINDS.get(cast("type", annotation), "VALUE")


def _default(value: object) -> str:
    """A setting's default in words, where it has one."""
    if value in (None, PydanticUndefined, (), ""):
        return ""
    values = cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,)
    return f" (default {','.join(map(_text, values))})"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value.value if isinstance(value, Enum) else value)


def given_settings(
    model: type[ProgramSettings], arguments: argparse.Namespace
) -> dict[str, object]:
    """Pick the settings that were given, as `load_fields` takes them."""
    known = {*model.model_fields, model.layout.flag}
    return {name: value for name, value in vars(arguments).items() if name in known}


def go_booleans(model: type[ProgramSettings], arguments: Sequence[str]) -> list[str]:
    """Write out boolean options that stand alone, as Go's programs take them.

    NVIDIA's plugin knows `--pass-device-specs` and `--pass-device-specs=false`, and never takes the
    next word as the value.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    booleans = {
        flag
        for name, names in names_of(model).items()
        if model.model_fields[name].annotation is bool
        for flag in names.flags
    }
    written = [f"{word}=true" if word in booleans else word for word in arguments[:end]]
    return [*written, *arguments[end:]]
