"""The images that an installation needs, for this machine alone: built, and kept in the cache.

Those of both programs are what `make images BASE=debian` makes of this checkout; kube-scheduler's
stands for the one of registry.k8s.io.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.release import (
    DEBIAN,
    PROGRAMS,
    Identity,
    ImageOrder,
    build_images,
    machine_architecture,
)
from tests.cluster.programs.cache import cache_folder, made_once
from tests.cluster.programs.containerd import NATIVE, quick_snapshotter
from tests.cluster.programs.debian import install_packages
from tests.cluster.programs.images import write_archive

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.programs.build import Binaries

__all__ = ["REGISTRY", "VERSION", "Images", "built_images", "engine", "program_images"]

REGISTRY = "coterie.test"
"""In the place of a registry's address; nothing is pulled, as the nodes have the images."""
VERSION = "1.2.3"
_ROOT = Path(__file__).resolve().parents[3]
_IDENTITY = Identity(VERSION, "0" * 40, 1_700_000_000, None, _ROOT)
"""The same for every commit, so that what does not change is built once."""
_CONTENT = (
    *("deploy/Containerfile", "deploy/release/images.py", "deploy/release/install.py"),
    *("requirements/extender.txt", "requirements/plugin.txt"),
    *("topology", "kube", "extender", "plugin"),
)
"""What images are made of."""


@dataclass(frozen=True, slots=True)
class Images:
    """Names with tags, and the archives to import."""

    extender: str
    plugin: str
    kube_scheduler: str
    archives: tuple[Path, ...]


def built_images(binaries: Binaries, folder: Path, say: Callable[[str], None]) -> Images:
    """All three; `folder` is for kube-scheduler's. Raises `ReleaseError`, `ProgramMissing`."""
    archives = sorted(program_images(say).glob("*.oci.tar"))
    scheduler = f"{REGISTRY}/kube-scheduler:{binaries.version}"

    def write(made: Path) -> None:
        write_archive(binaries.kube_scheduler, made / "kube-scheduler.tar", scheduler)

    archives += made_once(folder, write, say).glob("*.tar")
    extender, plugin = (f"{REGISTRY}/coterie/{program}:{VERSION}" for program in PROGRAMS)
    return Images(extender, plugin, scheduler, tuple(archives))


def program_images(say: Callable[[str], None]) -> Path:
    """The folder with the archives of both programs, built where the cache lacks this content.

    Raises `ReleaseError`, `ProgramMissing`.
    """
    content = hashlib.sha256()
    for path in _CONTENT:
        for file in sorted([_ROOT / path, *(_ROOT / path).rglob("*")]):
            if file.is_file() and "__pycache__" not in file.parts:
                content.update(f"{file.relative_to(_ROOT)}\n".encode() + file.read_bytes())
    folder = cache_folder() / f"images-{content.hexdigest()[:16]}"
    return made_once(folder, partial(_build, say=say), say)


def engine() -> tuple[str, ...]:
    """Buildah with a store of its own."""
    store = cache_folder() / "containers"
    driver = "vfs" if quick_snapshotter(store / "tried") == NATIVE else "overlay"
    options = {"root": store / "root", "runroot": store / "run", "storage-driver": driver}
    return ("buildah", *(f"--{name}={value}" for name, value in options.items()))


def _build(folder: Path, *, say: Callable[[str], None]) -> None:
    install_packages("buildah", "mmdebstrap", say=say)
    order = ImageOrder(
        architectures=(machine_architecture(),),
        registry=REGISTRY,
        base=DEBIAN,
        engine=engine(),
    )
    build_images(order, _IDENTITY, folder, say)
