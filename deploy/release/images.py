"""The three images: both programs', and kube-scheduler's for a scheduler of Coterie's own.

Builds each as one OCI archive for all its architectures, without Docker and without root. Layers
are the base, the dependencies and the project's code, so that a release with the same dependencies
has one new layer of about a megabyte.
"""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.release.content import (
    PROGRAMS,
    CachedLayer,
    base_layer,
    dependency_layer,
    program_tree,
    scheduler_tree,
    scheduler_version,
)
from deploy.release.errors import ContentRefused
from deploy.release.oci import (
    ARCHITECTURES,
    Architecture,
    ImageConfig,
    PlatformImage,
    pack,
    write_image,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deploy.release.checkout import Identity
    from deploy.release.oci import ImageFile

__all__ = ["IMAGES", "BuiltImage", "ImageOrder", "build_images"]

SCHEDULER = "kube-scheduler"
IMAGES = (*PROGRAMS, SCHEDULER)
"""What can be built, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageOrder:
    """Which images to build, and under which names."""

    names: tuple[str, ...] = IMAGES
    architectures: tuple[Architecture, ...] = ARCHITECTURES
    registry: str = ""
    """Put before each name, with a slash; empty for none."""
    kubernetes: str = "1.36"
    """The minor of kube-scheduler; must be one of those that the tests run on."""


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """An image on disk and what it is made of."""

    name: str
    """`extender`, `plugin` or `kube-scheduler`."""
    file: ImageFile
    platforms: tuple[PlatformImage, ...]
    layers: tuple[tuple[Architecture, tuple[CachedLayer, ...]], ...]
    """Its layers of other people's packages, by architecture."""


def build_images(
    order: ImageOrder,
    identity: Identity,
    target: Path,
    say: Callable[[str], None],
) -> list[BuiltImage]:
    """Build the images of a checkout into the folder `target`.

    Raises `StepFailed`, `ContentRefused`.
    """
    unknown = [name for name in order.names if name not in IMAGES]
    if unknown:
        msg = f"image {unknown[0]!r} is not known, expected one of {', '.join(IMAGES)}"
        raise ContentRefused(msg)
    target.mkdir(parents=True, exist_ok=True)
    # Most time goes to compressing and to other programs: another thread for each architecture.
    with (
        tempfile.TemporaryDirectory() as work,
        ThreadPoolExecutor(len(order.architectures)) as threads,
    ):
        build = _Build(order, identity, target, Path(work), threads, say)
        return [
            build.scheduler() if name == SCHEDULER else build.program(name) for name in order.names
        ]


@dataclass(frozen=True, slots=True)
class _Build:
    order: ImageOrder
    identity: Identity
    target: Path
    work: Path
    threads: ThreadPoolExecutor
    say: Callable[[str], None]

    def program(self, name: str) -> BuiltImage:
        program = PROGRAMS[name]
        folder = self.work / name
        folder.mkdir()
        version = self.identity.version
        layers = list(self.threads.map(partial(self._foreign, name), self._architectures))
        tree = program_tree(program, version, self.identity.checkout, folder, self.say)
        own = pack(tree, self.work / f"{name}.tar.gz")
        platforms = tuple(
            PlatformImage(
                architecture,
                (
                    ("Debian packages (base.lock)", base.packed),
                    (f"Python distributions (requirements/{name}.txt)", dependencies.packed),
                    (f"coterie {version}", own),
                ),
            )
            for architecture, (base, dependencies) in zip(self._architectures, layers, strict=True)
        )
        config = ImageConfig(
            entrypoint=(f"coterie-{name}",),
            command=program.command,
            user=program.user,
            environment={
                "PATH": "/opt/coterie/bin:/usr/local/bin:/usr/bin:/bin",
                "PYTHONUNBUFFERED": "1",
            },
            labels=self._labels(program.purpose, version),
        )
        file = self._write(f"coterie/{name}:{self.identity.image_tag}", platforms, config)
        made_of = tuple(zip(self._architectures, layers, strict=True))
        return BuiltImage(name, file, platforms, made_of)

    def scheduler(self) -> BuiltImage:
        version = scheduler_version(self.order.kubernetes)
        platforms: list[PlatformImage] = []
        for architecture in self._architectures:
            tree = scheduler_tree(
                self.order.kubernetes, architecture, self.identity.checkout, self.say
            )
            packed = pack(tree, self.work / f"{SCHEDULER}-{architecture.name}.tar.gz")
            platforms.append(PlatformImage(architecture, ((f"{SCHEDULER} {version}", packed),)))
        config = ImageConfig(
            entrypoint=(f"/usr/local/bin/{SCHEDULER}",),
            user="65532:65532",
            environment={"PATH": "/usr/local/bin:/usr/bin:/bin"},
            labels=self._labels("Kubernetes' scheduler, unchanged", version),
        )
        file = self._write(f"{SCHEDULER}:{version}", platforms, config)
        return BuiltImage(SCHEDULER, file, tuple(platforms), ())

    @property
    def _architectures(self) -> tuple[Architecture, ...]:
        return self.order.architectures

    def _foreign(self, name: str, architecture: Architecture) -> tuple[CachedLayer, ...]:
        """The layers of other people's packages."""
        return base_layer(architecture, self.say), dependency_layer(name, architecture, self.say)

    def _write(
        self, name: str, platforms: Sequence[PlatformImage], config: ImageConfig
    ) -> ImageFile:
        repository, _, tag = name.partition(":")
        file = f"{repository.replace('/', '-')}-{tag}.oci.tar"
        full = f"{self.order.registry.rstrip('/')}/{name}" if self.order.registry else name
        self.say(f"writing {file}")
        return write_image(self.target / file, full, platforms, config, epoch=self.identity.epoch)

    def _labels(self, purpose: str, version: str) -> dict[str, str]:
        prefix = "org.opencontainers.image"
        return {
            f"{prefix}.title": purpose,
            f"{prefix}.version": version,
            f"{prefix}.revision": self.identity.revision,
            f"{prefix}.licenses": "Apache-2.0",
        }
