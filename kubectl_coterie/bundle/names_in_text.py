"""Finds names in running text by their form: users, hosts, images, and what errors put in quotes.

As Kubernetes writes them: `pods "a" is forbidden: User "jane" cannot ...`, `pod="ml/a"`,
`https://api.example.com:6443`, `Back-off pulling image "..."`. Addresses need not be found, they
are replaced wherever they are.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING

from kubectl_coterie.bundle.kept_words import PATH_WORDS, is_public_host

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["names_in_host", "names_in_image", "names_in_path", "names_in_text", "split_name"]

_QUOTED = {
    **dict.fromkeys(("pod", "pods"), "pod"),
    **dict.fromkeys(("node", "nodes", "nodeName", "hostname"), "node"),
    **dict.fromkeys(("namespace", "namespaces"), "namespace"),
    **dict.fromkeys(("container", "containers"), "container"),
    **dict.fromkeys(("scheduler", "schedulerName", "profile"), "scheduler"),
    **dict.fromkeys(("user", "User", "username"), "user"),
    **dict.fromkeys(
        (
            *("persistentvolumeclaim", "persistentvolumeclaims", "pvc", "PVC", "claim"),
            *("persistentvolume", "persistentvolumes", "pv", "PV", "volume", "storageclass"),
            *("storageclasses", "configmap", "configmaps", "secret", "secrets", "service"),
            *("services", "serviceaccount", "serviceaccounts", "job", "jobs", "deployment"),
            *("deployments", "replicaset", "replicasets", "statefulset", "statefulsets"),
            *("daemonset", "daemonsets", "lease", "leases", "resourceclaim", "resourceclaims"),
            *("priorityclass", "priorityclasses", "runtimeclass", "runtimeclasses"),
        ),
        "object",
    ),
    "zone": "zone",
    "host": "host",
    "image": "image",
}
_PAIR = re.compile(
    rf'\b({"|".join(sorted(_QUOTED, key=len, reverse=True))})(?:\.[a-z0-9.]+)?[= ]\\?"([^"\\]+)\\?"'
)
"""As in `pod="ml/a"` and `node "gpu-0" not found`, the quotes escaped or not."""
_ACCOUNT = re.compile(r"\bsystem:serviceaccount:([a-z0-9-]+):([a-z0-9.-]*[a-z0-9])")
_NODE = re.compile(r"\bsystem:node:([a-z0-9.-]*[a-z0-9])")
_URL = re.compile(r"://(?:[^\s/@\"\\]*@)?([A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?)")
_LOOKUP = re.compile(r"\blookup ([A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?)")
_WITH_PORT = re.compile(r"(?<![\w./-])((?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,}):\d{2,5}\b")
_SOURCE = (".go", ".py", ".cc", ".rs", ".java")
"""Before the number of a line stands a file, and no host."""
_EMAIL = re.compile(r"[\w.+-]+@((?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,})")
_PATH_WORD = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")
_SHORTEST = 3
_SYSTEM = "system:"


def names_in_text(text: str) -> Iterator[tuple[str, str]]:
    """Kind and name of each."""
    if '"' in text:
        for key, name in _PAIR.findall(text):
            yield from split_name(_QUOTED[key], name)
    if _SYSTEM in text:
        yield from _system_users(text)
    if "@" in text:
        for found in _EMAIL.finditer(text):
            yield from split_name("user", found[0])
    for pattern in (_URL, _LOOKUP, _WITH_PORT):
        for host in pattern.findall(text):
            if not host.endswith(_SOURCE):
                yield from names_in_host(host)


def _system_users(text: str) -> Iterator[tuple[str, str]]:
    for namespace, account in _ACCOUNT.findall(text):
        yield "namespace", namespace
        yield "object", account
    for name in _NODE.findall(text):
        yield "node", name


def split_name(kind: str, name: str) -> Iterator[tuple[str, str]]:
    """The names in what stands for one: with its namespace, a user's parts, an image's path."""
    if kind == "image":
        yield from names_in_image(name)
    elif kind == "host":
        yield from names_in_host(name)
    elif kind == "user":
        yield from _names_in_user(name)
    else:
        first, slash, rest = name.partition("/")
        if slash and kind not in {"node", "namespace"}:
            yield "namespace", first
            yield kind, rest
        else:
            yield kind, name


def names_in_host(host: str) -> Iterator[tuple[str, str]]:
    """A host's name; of a Service its own and its namespace; none of an address."""
    host = host.lower()
    if is_public_host(host) or _is_address(host):
        return
    pieces = host.split(".")
    if "svc" in pieces[2:3]:
        yield "object", pieces[0]
        yield "namespace", pieces[1]
    else:
        yield "host", host


def names_in_image(image: str) -> Iterator[tuple[str, str]]:
    """An image's registry and folders; its last part, with the tag, is what it is.

    >>> list(names_in_image("registry.example:5000/ml/extender:1.0@sha256:0f"))
    [('registry', 'registry.example'), ('registry', 'ml')]
    """
    for part in image.partition("@")[0].split("/")[:-1]:
        name = part.partition(":")[0]
        if not is_public_host(name) and not _is_address(name):
            yield "registry", name


def names_in_path(path: str) -> Iterator[tuple[str, str]]:
    """Components of a file's path that are not the same everywhere."""
    for word in _PATH_WORD.findall(path):
        if len(word) >= _SHORTEST and word not in PATH_WORDS and not word.isdigit():
            yield "path", word


def _names_in_user(user: str) -> Iterator[tuple[str, str]]:
    if user.startswith(_SYSTEM):
        return
    yield "user", user
    name = re.split(r"[:/#]", user)[-1]
    first, at, domain = name.partition("@")
    yield "user", first
    if at:
        yield "host", domain


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
