"""The lowest layer of both programs' images: Python and its libraries, from Debian.

Only files are taken: no maintainer script runs, so no root is needed. What those scripts would make
and the programs need is written here. There is no shell, no package manager and no compiler.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.release.commands import run
from deploy.release.content import bytecode, pruning
from deploy.release.content.bytecode import compile_sources
from deploy.release.content.cached import Component, cached_layer, content_key
from deploy.release.content.debian_lock import PYTHON, read_lock
from deploy.release.content.debian_mirror import fetch
from deploy.release.content.pruning import BASE_UNUSED, is_unused
from deploy.release.oci import File, Folder, folder_tree, machine_architecture

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deploy.release.content.cached import CachedLayer
    from deploy.release.content.debian_lock import DebianPackage
    from deploy.release.oci import Architecture, Entry, Tree

__all__ = ["ACCOUNTS", "base_layer"]

ACCOUNTS: dict[str, Entry] = {
    "etc/passwd": File(
        b"root:x:0:0:root:/root:/sbin/nologin\n"
        b"nobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\n"
        b"nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n"
    ),
    "etc/group": File(b"root:x:0:\nnogroup:x:65534:\nnonroot:x:65532:\n"),
    "tmp": Folder(0o1777),
}
"""What every image has; 65532 is the number that images without a distribution commonly use."""

# The programs ask for names by files, then by DNS, which glibc would also do without the file.
_OWN: dict[str, Entry] = {"etc/nsswitch.conf": File(b"hosts: files dns\n")}
_STDLIB = f"usr/lib/python{PYTHON}"


def base_layer(architecture: Architecture, say: Callable[[str], None]) -> CachedLayer:
    """The layer for that architecture; its folder is the unpacked root.

    Raises `StepFailed`, `ContentRefused`.
    """
    packages = [one for one in read_lock() if one.architecture == architecture.name]
    sources = (Path(one) for one in (__file__, bytecode.__file__, pruning.__file__))
    key = content_key(*sources, *(one.sha256 for one in packages))
    make = partial(_make, architecture, packages, say)
    return cached_layer(f"base-{architecture.name}", key, make, say, keeps_folder=True)


def _make(
    architecture: Architecture,
    packages: Sequence[DebianPackage],
    say: Callable[[str], None],
    root: Path,
) -> tuple[Tree, list[Component]]:
    files = fetch(packages, say)
    say(f"unpacking the base for {architecture.name}")
    # base-files first: it has the links such as /lib that other packages' paths lead through.
    for one in sorted(packages, key=lambda one: (one.name != "base-files", one.name)):
        file = files[one.sha256]
        run(["dpkg-deb", "--extract", file, root])
        described = run(["dpkg-deb", "--field", file])
        # Where scanners look for the packages of an image without dpkg's own database.
        status = root / "var/lib/dpkg/status.d" / one.name
        status.parent.mkdir(parents=True, exist_ok=True)
        status.write_text(described, encoding="utf-8")
    for path, entry in folder_tree(root).items():
        if not isinstance(entry, Folder) and is_unused(path, BASE_UNUSED):
            (root / path).unlink()
    _remove_empty(root, BASE_UNUSED)
    machine = machine_architecture()
    runs = root if architecture == machine else base_layer(machine, say).folder
    say(f"compiling Python's library for {architecture.name}")
    compile_sources(runs, machine, root / _STDLIB, f"/{_STDLIB}")
    tree = folder_tree(root) | ACCOUNTS | _OWN
    return tree, [Component(one.name, one.version) for one in packages]


def _remove_empty(root: Path, patterns: Sequence[str]) -> None:
    """Remove the folders that a pattern emptied."""
    folders = [path for path, entry in folder_tree(root).items() if isinstance(entry, Folder)]
    for path in sorted(folders, reverse=True):
        if is_unused(f"{path}/", patterns) and not any((root / path).iterdir()):
            (root / path).rmdir()
