"""Which context, cluster and user the files of `KUBECONFIG` mean, as kubectl takes them.

Only what the client library does otherwise than kubectl (kubernetes 37.0.2, `KubeConfigMerger` and
`KubeConfigLoader`) is done here, since a user would ask another cluster or fail to log in; the
library reads the result. It takes `current-context` from the last file instead of the first; the
paths of a user relative to the file of its cluster, and an exec plugin's relative to the working
directory; fails at an empty file; and sends no impersonation. A date is text. It never writes a
file, opens no connection, and repeats in errors neither a credential nor what it could not read.

Source: client-go v0.36.3, tools/clientcmd: `Load` and `ResolveLocalPaths` of loader.go,
`getContext` and `getAuthInfo` of client_config.go; the field names are those of api/v1/types.go.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote as url_quote

import yaml

from kube.errors import Unreachable, Unreadable, cut
from topology.errors import quote
from topology.model import as_object, list_at, object_at, objects_at, text_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Impersonation", "Kubeconfig", "read_kubeconfig", "unusable"]

_KINDS = {"clusters": "cluster", "contexts": "context", "users": "user"}
"""Lists of a kubeconfig, and the key of what each of their entries names."""
_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
"""Keys with paths (`GetClusterFileReferences` and `GetAuthInfoFileReferences` of loader.go)."""
_HEADER_KEY = "!#$&'*+^`|"
"""What a header's name may hold beside what `quote` keeps anyway; `%` is escaped
(`headerKeyEscape` of client-go v0.36.3, transport/round_trippers.go)."""
_FORBIDDEN = frozenset("\r\n\0")


class _Loader(yaml.SafeLoader):
    """Reads a date as text: kubectl reads the types of JSON, which has none (sigs.k8s.io/yaml)."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as the base class has it
        first: [(tag, pattern) for tag, pattern in known if tag != "tag:yaml.org,2002:timestamp"]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


@dataclass(frozen=True, slots=True)
class Impersonation:
    """As whom requests are made; empty: as who authenticates. `extra` has pairs of key and value.

    >>> Impersonation(user="jane", extra=(("example.com/role", "x"),)).headers()
    [('Impersonate-User', 'jane'), ('Impersonate-Extra-example.com%2Frole', 'x')]
    """

    user: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, str], ...] = ()

    def headers(self) -> list[tuple[str, str]]:
        """The headers of each request (`impersonatingRoundTripper` of round_trippers.go).

        Raises `ValueError` without a user for the rest (`validateAuthInfo` of validation.go), and
        for a value that no header may hold.
        """
        if not self.user and (self.uid or self.groups or self.extra):
            msg = "a group, uid or extra to impersonate is given without a user"
            raise ValueError(msg)
        single = (("Impersonate-User", self.user), ("Impersonate-Uid", self.uid))
        found = [(name, value) for name, value in single if value]
        found += [("Impersonate-Group", group) for group in self.groups]
        for key, value in self.extra:
            found.append((f"Impersonate-Extra-{url_quote(key, safe=_HEADER_KEY)}", value))
        for name, value in found:
            if not _FORBIDDEN.isdisjoint(value):
                msg = f"{name} is {quote(value)}, expected one line"
                raise ValueError(msg)
        return found


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """The files in one, with absolute paths, and what its context names.

    `context_name` is the context in use, `namespace` that of the context; empty: it names none.
    """

    content: Mapping[str, object]
    context_name: str
    namespace: str
    impersonation: Impersonation


def read_kubeconfig(kubeconfig: Path, context: str | None) -> Kubeconfig:
    """Read a kubeconfig (several where they are joined as in `KUBECONFIG`) for a context.

    Without a context it is the current one of the first file that names one. Of entries with the
    same name that of the first file is taken, whole; files that are missing are left out. Raises
    `Unreachable` for a configuration that cannot be used.
    """
    merged: dict[str, dict[str, Mapping[str, object]]] = {kind: {} for kind in _KINDS}
    name, n_files = context or "", 0
    try:
        for path, content in _files(kubeconfig):
            n_files += 1
            name = name or text_at(content, "current-context")
            for kind, key in _KINDS.items():
                for entry in objects_at(content, kind):
                    value = _resolved(object_at(entry, key), path.parent)
                    merged[kind].setdefault(text_at(entry, "name"), value)
        chosen = merged["contexts"].get(name) if name else None
        if chosen is None:
            cause = f"it has no context {quote(name)}" if name else "it has no current-context"
            raise unusable(kubeconfig, cause if n_files else "there is no such file")
        namespace = text_at(chosen, "namespace")
        # A user that is missing is anonymous, as for kubectl.
        user = merged["users"].setdefault(text_at(chosen, "user"), {})
    except OSError as error:
        raise unusable(kubeconfig, str(error)) from error
    except (yaml.YAMLError, ValueError, RuntimeError, Unreadable) as error:
        raise unusable(kubeconfig, "unreadable") from error
    whole = {
        kind: [{"name": one, _KINDS[kind]: value} for one, value in entries.items()]
        for kind, entries in merged.items()
    }
    try:
        return Kubeconfig(whole, name, namespace, _impersonation(user))
    except Unreadable as error:
        raise unusable(kubeconfig, str(error)) from error


def unusable(kubeconfig: Path | None, cause: str) -> Unreachable:
    """The error of a kubeconfig, or of the pod's own configuration, that cannot be used."""
    where = "in-cluster configuration" if kubeconfig is None else f"kubeconfig {kubeconfig}"
    return Unreachable(0, "BadConfiguration", cut(f"{where}: {cause}"))


def _files(kubeconfig: Path) -> Iterator[tuple[Path, Mapping[str, object]]]:
    """Each file that is there, with its content; an empty one has none."""
    for name in filter(None, str(kubeconfig).split(os.pathsep)):
        path = Path(name).expanduser().absolute()
        if path.exists():
            text = path.read_text(encoding="utf-8") if path.is_file() else _read_once(path)
            content = yaml.load(text, Loader=_Loader)  # noqa: S506 - it is the safe one
            yield path, as_object({} if content is None else content, "kubeconfig")


@lru_cache
def _read_once(path: Path) -> str:
    """A pipe, as of a shell's `<(...)`: it is empty the second time."""
    return path.read_text(encoding="utf-8")


def _resolved(value: Mapping[str, object], folder: Path) -> Mapping[str, object]:
    """What an entry holds, with the paths that are relative to the folder of its file absolute."""
    found = dict(value)
    for name in _FILES:
        if path := text_at(value, name):
            found[name] = str(folder / path)
    program = object_at(value, "exec")
    command = text_at(program, "command")
    if os.sep in command:  # else it is looked for in PATH
        found["exec"] = {**program, "command": str(folder / command)}
    return found


def _impersonation(user: Mapping[str, object]) -> Impersonation:
    extra = object_at(user, "as-user-extra")
    return Impersonation(
        user=text_at(user, "as"),
        uid=text_at(user, "as-uid"),
        groups=_texts(user, "as-groups"),
        # A number as a key is text, as in JSON.
        extra=tuple((str(key), value) for key in extra for value in _texts(extra, key)),
    )


def _texts(parent: Mapping[str, object], key: str) -> tuple[str, ...]:
    values = list_at(parent, key)
    found = tuple(value for value in values if isinstance(value, str))
    if len(found) < len(values):
        msg = f"{key} is {quote(values)}, expected a list of strings"
        raise Unreadable(msg)
    return found
