"""The images of deploy/ as a release makes them, for this machine alone.

Builds them once and says under which names containerd has them; a second name of the same image is
what an upgrade changes to.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.release import IMAGES, ImageOrder, build_images, identify
from deploy.release.oci import machine_architecture
from tests.cluster.programs.cache import made_once

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["REGISTRY", "Images", "built_images"]

REGISTRY = "coterie.test"
"""In the place of a registry's address; nothing is pulled, as the nodes have the images."""
_NAMES = "names.json"
_ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class Images:
    """Names with tags, and the archives to import."""

    extender: str
    plugin: str
    kube_scheduler: str
    archives: tuple[Path, ...]


def built_images(minor: str, folder: Path, say: Callable[[str], None]) -> Images:
    """Those of this checkout and for that Kubernetes minor, built where `folder` is not there yet.

    Raises `ReleaseError`.
    """
    made_once(folder, partial(_build, minor, say=say), say)
    names = json.loads((folder / _NAMES).read_text(encoding="utf-8"))
    extender, plugin, kube_scheduler = (names[image] for image in IMAGES)
    return Images(extender, plugin, kube_scheduler, tuple(sorted(folder.glob("*.oci.tar"))))


def _build(minor: str, folder: Path, *, say: Callable[[str], None]) -> None:
    order = ImageOrder(architectures=(machine_architecture(),), registry=REGISTRY, kubernetes=minor)
    built = build_images(order, identify(_ROOT), folder, say)
    names = {image.name: image.file.name for image in built}
    (folder / _NAMES).write_text(json.dumps(names), encoding="utf-8")
