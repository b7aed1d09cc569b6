"""The effective values of a program's settings, each checked by itself, or one sentence of fault.

Unknown flags, keys of the file and variables with the program's prefix are errors: a misspelt
setting must not be silently without effect.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_origin

from pydantic import ValidationError

from kube.documents import first_fault
from kube.errors import SettingsError
from kube.settings.fields import ProgramSettings, names_of
from kube.settings.file import FileContent, read_file
from topology.cli.program import EXTENDER_URL

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from kube.settings.fields import FieldNames

__all__ = ["LoadedFields", "load_fields"]

S = TypeVar("S", bound=ProgramSettings)

_SERVICE_HOST = "_SERVICE_HOST"
_SERVICE_LINK = re.compile(
    "_SERVICE_(?:HOST|PORT(?:_.+)?)|_PORT_[0-9]+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?"
)
_SERVICE_URL = "_PORT"
_END_OF_SERVICE = re.compile("_(?=SERVICE_|PORT)")


@dataclass(frozen=True, slots=True)
class LoadedFields(Generic[S]):
    """Settings, which of them `by_hand` (flag or environment), and the file's content."""

    settings: S
    by_hand: frozenset[str]
    file: FileContent


def load_fields(
    model: type[S], flags: Mapping[str, object], environ: Mapping[str, str] | None = None
) -> LoadedFields[S]:
    """Compute the effective settings; `flags` holds only those that were given, by setting.

    Among them may be the file's path, under `FileLayout.flag`. Raises `SettingsError`, naming the
    setting, where its value comes from, the value and what was expected.
    """
    environ = _without_service_links(os.environ if environ is None else environ)
    names, layout = names_of(model), model.layout
    _check_environment(model, names, environ)
    path = flags.get(layout.flag, environ.get(layout.variable)) or None
    keys = {other.key: name for name, other in names.items()}
    file = FileContent() if path is None else read_file(Path(str(path)), keys, layout)
    given = {name: value for name, value in flags.items() if name != layout.flag}
    variables = _variables(model, names, environ)
    values: dict[str, Any] = {
        **file.values,
        **{name: _variable(model, name, one, environ[one]) for name, one in variables.items()},
        **given,
    }
    origins = {name: f"file, {names[name].key}" for name in file.values}
    origins |= {name: f"environment, {variable}" for name, variable in variables.items()}
    origins |= {name: f"flag, --{name.replace('_', '-')}" for name in given}
    try:
        settings = model(**values)
    except ValidationError as error:
        msg = f"setting {first_fault(error, whole='values', origins=origins)}"
        raise SettingsError(msg) from error
    return LoadedFields(settings, frozenset({*variables, *given}), file)


def _without_service_links(environ: Mapping[str, str]) -> Mapping[str, str]:
    """The variables but those that the kubelet adds for the Services of the pod's namespace.

    A Service `coterie-extender` is `COTERIE_EXTENDER_SERVICE_HOST`, `COTERIE_EXTENDER_PORT` and so
    on (Kubernetes 1.36, pkg/kubelet/envvars/envvars.go); `PORT` alone has a URL as its value.
    """
    hosts = [name for name in environ if name.endswith(_SERVICE_HOST)]
    services = {name.removesuffix(_SERVICE_HOST) for name in hosts}
    return {
        name: text for name, text in environ.items() if not _is_service_link(name, text, services)
    }


def _is_service_link(name: str, text: str, services: AbstractSet[str]) -> bool:
    ends = (found.start() for found in _END_OF_SERVICE.finditer(name))
    links = [name[end:] for end in ends if name[:end] in services]
    return any(
        _SERVICE_LINK.fullmatch(link) or (link == _SERVICE_URL and "://" in text) for link in links
    )


def _variable(model: type[ProgramSettings], name: str, variable: str, text: str) -> str:
    """A boolean's empty variable is false (urfave/cli v2.27.7, flag_bool.go, `Apply`).

    One of a list is an empty list. Raises `SettingsError` for any other: an address would be every
    interface, and a path this folder.
    """
    annotation = model.model_fields[name].annotation
    if text or get_origin(annotation) is tuple:
        return text
    if annotation is bool:
        return "false"
    msg = f"setting {name} (environment, {variable}) is '', expected a value, or no such variable"
    raise SettingsError(msg)


def _variables(
    model: type[ProgramSettings], names: Mapping[str, FieldNames], environ: Mapping[str, str]
) -> dict[str, str]:
    """The variable that each setting is taken from.

    An empty one is unset where it is no boolean and its name is not of this program alone: NVIDIA's
    plugin takes what a template left empty so.
    """
    prefix, found = model.layout.prefix, dict[str, str]()
    for name, one in names.items():
        is_boolean = model.model_fields[name].annotation is bool
        counts = (v for v in one.env if is_boolean or v.startswith(prefix) or environ.get(v))
        if variable := next((v for v in counts if v in environ), None):
            found[name] = variable
    return found


def _check_environment(
    model: type[ProgramSettings], names: Mapping[str, FieldNames], environ: Mapping[str, str]
) -> None:
    prefix = model.layout.prefix
    known = {variable for one in names.values() for variable in one.env} | {model.layout.variable}
    known = {variable for variable in known if variable.startswith(prefix)}
    for variable in sorted(environ):
        if variable.upper().startswith(prefix) and variable not in {*known, EXTENDER_URL}:
            expected = ", ".join(sorted(known))
            msg = f"environment variable {variable} is no setting, expected one of: {expected}"
            raise SettingsError(msg)
