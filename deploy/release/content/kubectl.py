"""The files of `kubectl coterie` for one architecture, which run with the Python of a machine.

Wheels of compiled distributions are for one minor version of Python each, so the archive has them
for each version that it supports, and what is the same for all once. It has no symbolic link, since
krew unpacks none (krew, pkg/download/downloader.go).
"""

from __future__ import annotations

import hashlib
import sys
from typing import TYPE_CHECKING

from deploy.release.commands import run
from deploy.release.content.dependencies import program_lock
from deploy.release.content.pruning import DEPENDENCIES_UNUSED, pruned
from deploy.release.oci import File, Folder, folder_tree
from requirements.install import pip_settings, uv_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from deploy.release.oci import Architecture, Entry

__all__ = ["PYTHONS", "kubectl_tree", "launcher_tree", "merged"]

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
"""Versions of Python for which every locked distribution has a wheel."""
_PACKAGES = ("topology", "kube", "kubectl_coterie")
_OWN_UNUSED = ("*__pycache__/*", "*.pyi")
_COMMON = "lib/common"
_LAUNCHER = """\
#!/bin/sh
# Starts {program} with a Python of this machine. krew and people link to this file.
here=$(dirname -- "$(readlink -f -- "$0")")
ask='import sys; print("%d.%d" % sys.version_info[:2])'
for python in python3 {named}; do
    version=$("$python" -I -c "$ask" 2>/dev/null) || continue
    if [ -d "$here/lib/$version" ]; then
        exec "$python" -I "$here/{program}.py" "$@"
    fi
done
echo "error: {program} found no Python of {versions} on PATH: install one" >&2
exit 1
"""
_START = '''\
"""Starts {program}: the folders beside this file hold all that it imports."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
VERSION = "%d.%d" % sys.version_info[:2]
sys.path[:0] = [os.path.join(HERE, "lib", name) for name in ("common", VERSION)]

from kubectl_coterie.__main__ import {function}

{function}()
'''
_PROGRAMS = {"kubectl-coterie": "main", "kubectl_complete-coterie": "complete"}


def kubectl_tree(
    architecture: Architecture,
    version: str,
    checkout: Path,
    work: Path,
    say: Callable[[str], None],
) -> dict[str, Entry]:
    """All files of that version, made in the empty folder `work`; raises `StepFailed`."""
    installed: dict[str, dict[str, Entry]] = {}
    for python in PYTHONS:
        say(f"installing the dependencies of kubectl-coterie for {architecture.name}, {python}")
        folder = work / python
        _install(architecture, python, folder)
        installed[python] = pruned(folder_tree(folder), DEPENDENCIES_UNUSED)
    own = {
        path: entry
        for package in _PACKAGES
        for path, entry in folder_tree(checkout / package, f"{_COMMON}/{package}").items()
        if isinstance(entry, File)
    }
    metadata = f"Metadata-Version: 2.1\nName: coterie\nVersion: {version}\n"
    return {
        **merged(installed),
        **pruned(own, _OWN_UNUSED),
        **launcher_tree(),
        f"{_COMMON}/coterie-{version}.dist-info/METADATA": File(metadata.encode()),
        "LICENSE": File(checkout / "LICENSE"),
    }


def launcher_tree() -> dict[str, Entry]:
    """The two programs that people and kubectl start."""
    tree: dict[str, Entry] = {}
    for program, function in _PROGRAMS.items():
        named = " ".join(f"python{one}" for one in reversed(PYTHONS))
        versions = f"{', '.join(PYTHONS[:-1])} or {PYTHONS[-1]}"
        shell = _LAUNCHER.format(program=program, named=named, versions=versions)
        tree[program] = File(shell.encode(), 0o755)
        start = _START.format(program=program, function=function)
        tree[f"{program}.py"] = File(start.encode())
    return tree


def merged(installed: Mapping[str, Mapping[str, Entry]]) -> dict[str, Entry]:
    """One tree of those for each version: packages that are the same in all, once.

    A package lies in one folder whole, since Python looks for its modules in the first that has it,
    and the libraries of a compiled one (`NAME.libs`) beside it, where it looks for them.
    """
    parts = {python: _by_package(tree) for python, tree in installed.items()}
    digests = [{name: _digest(tree) for name, tree in part.items()} for part in parts.values()]
    same = {
        name
        for name, digest in digests[0].items()
        if not name.endswith(".libs") and all(one.get(name) == digest for one in digests)
    }
    found: dict[str, Entry] = {}
    for python, part in parts.items():
        for name, tree in part.items():
            folder = _COMMON if name in same else f"lib/{python}"
            found |= {f"{folder}/{path}": entry for path, entry in tree.items()}
    return found


def _by_package(tree: Mapping[str, Entry]) -> dict[str, dict[str, Entry]]:
    parts: dict[str, dict[str, Entry]] = {}
    for path, entry in tree.items():
        if not isinstance(entry, Folder):  # `pack` adds those that still hold something
            parts.setdefault(path.partition("/")[0], {})[path] = entry
    return parts


def _digest(tree: Mapping[str, Entry]) -> str:
    digest = hashlib.sha256()
    for path in sorted(tree):
        entry = tree[path]
        content = entry.content if isinstance(entry, File) else b""
        read = content if isinstance(content, bytes) else content.read_bytes()
        digest.update(f"{path}\n{hashlib.sha256(read).hexdigest()}\n".encode())
    return digest.hexdigest()


def _install(architecture: Architecture, python: str, folder: Path) -> None:
    settings = pip_settings()
    is_offline = settings.get("no-index", "0").lower() in {"1", "true"}
    run(
        [
            *(sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps"),
            *("--target", folder, "--python-version", python),
            *("--python-platform", architecture.wheels, "--only-binary", ":all:"),
            *(["--no-index"] if is_offline else []),
            *("--require-hashes", "--requirement", program_lock("kubectl")),
        ],
        environment=uv_environment(settings),
    )
