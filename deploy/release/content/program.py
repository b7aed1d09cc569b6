"""The layer of the project's own code: what one program needs, and the program on PATH.

Its place is a virtual environment over the base's Python, so `/opt/coterie/bin/python` and the
program start without any variable of the environment.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deploy.release.content.base import base_layer
from deploy.release.content.bytecode import compile_sources
from deploy.release.content.debian_lock import PYTHON
from deploy.release.content.dependencies import SITE
from deploy.release.content.pruning import OWN_UNUSED, is_unused
from deploy.release.oci import File, Link, folder_tree, machine_architecture

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from deploy.release.oci import Entry

__all__ = ["PROGRAMS", "SITE", "Program", "program_tree"]

_ENVIRONMENT = "opt/coterie"


@dataclass(frozen=True, slots=True)
class Program:
    """One of the project's programs, as its image starts it."""

    name: str
    """Of the image, of its lock and of its package."""
    packages: tuple[str, ...]
    """Top-level packages that its image has."""
    command: tuple[str, ...]
    """Its arguments where a pod gives none."""
    user: str
    """`uid:gid`; empty is root."""
    purpose: str


PROGRAMS = {
    "extender": Program(
        name="extender",
        packages=("topology", "kube", "extender"),
        command=("serve",),
        user="65532:65532",
        purpose="Coterie's scheduler extender",
    ),
    # The kubelet's sockets belong to root: the plugin's manifest says what else root may do there.
    "plugin": Program(
        name="plugin",
        packages=("topology", "kube", "plugin"),
        command=("run",),
        user="",
        purpose="Coterie's node plugin",
    ),
}


def program_tree(
    program: Program,
    version: str,
    checkout: Path,
    work: Path,
    say: Callable[[str], None],
) -> dict[str, Entry]:
    """The files of a program of that version, made in the empty folder `work`."""
    say(f"compiling the code of {program.name}")
    sources = work / "site"
    for package in program.packages:
        for path, entry in folder_tree(checkout / package, package).items():
            if isinstance(entry, File) and not is_unused(path, OWN_UNUSED):
                target = sources / path
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(checkout / path, target)
    machine = machine_architecture()
    compile_sources(base_layer(machine, say).folder, machine, sources, f"/{SITE}")
    name = f"coterie-{program.name}"
    return folder_tree(sources, SITE) | {
        # Where Python looks for an installed distribution's version.
        f"{SITE}/coterie-{version}.dist-info/METADATA": _text(
            f"Metadata-Version: 2.1\nName: coterie\nVersion: {version}\n"
        ),
        f"{_ENVIRONMENT}/LICENSE": File(checkout / "LICENSE"),
        f"{_ENVIRONMENT}/pyvenv.cfg": _text(
            f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {PYTHON}\n"
        ),
        f"{_ENVIRONMENT}/bin/python": Link(f"/usr/bin/python{PYTHON}"),
        f"{_ENVIRONMENT}/bin/{name}": _text(
            f"#!/{_ENVIRONMENT}/bin/python\nfrom {program.name}.__main__ import main\n\nmain()\n",
            mode=0o755,
        ),
    }


def _text(content: str, *, mode: int = 0o644) -> File:
    return File(content.encode(), mode)
