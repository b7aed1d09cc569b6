"""The layer of a program's locked dependencies, without what no program uses.

Wheels are taken by uv from whatever index pip is set to, by the hashes of the program's lock, for
the architecture of the image: nothing is built, so that one machine makes both.
"""

from __future__ import annotations

import re
import sys
from email import message_from_string
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.release.commands import run
from deploy.release.content import bytecode, pruning
from deploy.release.content.base import base_layer
from deploy.release.content.bytecode import compile_sources
from deploy.release.content.cached import Component, cached_layer, content_key
from deploy.release.content.debian_lock import LOCK, PYTHON
from deploy.release.content.pruning import DEPENDENCIES_UNUSED, is_unused
from deploy.release.oci import Folder, folder_tree, machine_architecture
from requirements.install import pip_settings, uv_environment

if TYPE_CHECKING:
    from collections.abc import Callable

    from deploy.release.content.cached import CachedLayer
    from deploy.release.oci import Architecture, Tree

__all__ = ["SITE", "dependency_layer", "locked_pins", "program_lock"]

SITE = f"opt/coterie/lib/python{PYTHON}/site-packages"
"""Where the image has distributions, the project's own among them: a virtual environment."""

_ROOT = Path(__file__).resolve().parents[3]


def program_lock(program: str) -> Path:
    """The lock of that program's dependencies."""
    return _ROOT / "requirements" / f"{program}.txt"


def locked_pins(lock: Path) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Version and SHA-256 hashes of each distribution in a lock, by its name."""
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for entry in re.split(r"(?<!\\)\n", lock.read_text(encoding="utf-8")):
        pin = re.match(r"([\w.-]+)==([^\s;]+)", entry)
        if pin is not None:
            found[pin[1]] = pin[2], tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})", entry))
    return found


def dependency_layer(
    program: str, architecture: Architecture, say: Callable[[str], None]
) -> CachedLayer:
    """The layer of that program for that architecture; raises `StepFailed`, `ContentRefused`."""
    sources = (Path(one) for one in (__file__, bytecode.__file__, pruning.__file__))
    key = content_key(*sources, program_lock(program), LOCK)
    make = partial(_make, program, architecture, say)
    return cached_layer(f"{program}-{architecture.name}", key, make, say)


def _make(
    program: str, architecture: Architecture, say: Callable[[str], None], folder: Path
) -> tuple[Tree, list[Component]]:
    say(f"installing the dependencies of {program} for {architecture.name}")
    settings = pip_settings()
    is_offline = settings.get("no-index", "0").lower() in {"1", "true"}
    run(
        [
            *(sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps"),
            *("--target", folder, "--python-version", PYTHON),
            *("--python-platform", architecture.wheels, "--only-binary", ":all:"),
            *(["--no-index"] if is_offline else []),
            *("--require-hashes", "--requirement", program_lock(program)),
        ],
        environment=uv_environment(settings),
    )
    for path, entry in folder_tree(folder).items():
        if not isinstance(entry, Folder) and is_unused(path, DEPENDENCIES_UNUSED):
            (folder / path).unlink()
    machine = machine_architecture()
    say(f"compiling the dependencies of {program} for {architecture.name}")
    compile_sources(base_layer(machine, say).folder, machine, folder, f"/{SITE}")
    tree = {
        path: entry
        for path, entry in folder_tree(folder, SITE).items()
        if not isinstance(entry, Folder)  # `pack` adds those that still hold something
    }
    return tree, _components(folder)


def _components(folder: Path) -> list[Component]:
    """The distributions in a folder, as their metadata names them."""
    found: list[Component] = []
    for path in sorted(folder.glob("*.dist-info/METADATA")):
        head = message_from_string(path.read_text(encoding="utf-8").partition("\n\n")[0])
        licence = head["License-Expression"] or head["License"] or ""
        found.append(Component(head["Name"], head["Version"], licence.partition("\n")[0]))
    return found
