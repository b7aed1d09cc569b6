"""An image for several architectures as one file that container runtimes and registries take.

Writes an OCI image layout (image-spec v1.1, image-layout.md) as a tar archive: `index.json` names
one image index, which names a manifest for each architecture. The digest of that index is the
digest of the image in a registry; the name is outside it, so an image may be renamed.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from deploy.release.oci.layers import Packed
    from deploy.release.oci.platforms import Architecture

__all__ = ["ImageConfig", "ImageFile", "PlatformImage", "write_image"]

_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_NAME = "io.containerd.image.name"
"""By which containerd names what it imports (containerd, core/images/annotations.go)."""
_TAG = "org.opencontainers.image.ref.name"
"""By which podman, skopeo and others find an image in a layout (image-spec, annotations.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageConfig:
    """How a container of the image starts."""

    entrypoint: tuple[str, ...]
    command: tuple[str, ...] = ()
    """Arguments where a pod gives none."""
    user: str = ""
    """`uid:gid`; empty is root."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    labels: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class PlatformImage:
    """The image for one architecture: its layers, the lowest first, by what made them."""

    architecture: Architecture
    layers: tuple[tuple[str, Packed], ...]

    @property
    def size(self) -> int:
        """Compressed bytes."""
        return sum(layer.size for _, layer in self.layers)

    @property
    def unpacked(self) -> int:
        """Bytes of its files."""
        return sum(layer.unpacked for _, layer in self.layers)


@dataclass(frozen=True, slots=True)
class ImageFile:
    """An image on disk."""

    path: Path
    name: str
    """With its tag, as the file itself names it."""
    digest: str
    """`sha256:` of the image index, by which a registry has it."""


def write_image(
    target: Path,
    name: str,
    platforms: Sequence[PlatformImage],
    config: ImageConfig,
    *,
    epoch: int,
) -> ImageFile:
    """Write the archive. `name` has a tag (`coterie/extender:1.0`), `epoch` is Unix time."""
    blobs: dict[str, bytes | Path] = {}
    manifests = [_manifest(one, config, epoch, blobs) for one in platforms]
    index = _json({"schemaVersion": 2, "mediaType": _INDEX, "manifests": manifests})
    described = _described(_INDEX, index, blobs)
    named = described | {"annotations": {_NAME: name, _TAG: name.rpartition(":")[2]}}
    files: dict[str, bytes | Path] = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": _json({"schemaVersion": 2, "mediaType": _INDEX, "manifests": [named]}),
    }
    files |= {f"blobs/sha256/{digest}": blobs[digest] for digest in sorted(blobs)}
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        for path, content in files.items():
            _add(archive, path, content, epoch)
    return ImageFile(target, name, str(described["digest"]))


def _manifest(
    image: PlatformImage, config: ImageConfig, epoch: int, blobs: dict[str, bytes | Path]
) -> dict[str, object]:
    """Add the blobs of one architecture; returns what the index says of it."""
    created = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    platform = {"architecture": image.architecture.name, "os": "linux"}
    if image.architecture.variant is not None:
        platform["variant"] = image.architecture.variant
    content = {
        **platform,
        "created": created,
        "config": {
            **({"User": config.user} if config.user else {}),
            "Env": [f"{name}={value}" for name, value in sorted(config.environment.items())],
            "Entrypoint": list(config.entrypoint),
            **({"Cmd": list(config.command)} if config.command else {}),
            "WorkingDir": "/",
            "Labels": dict(sorted(config.labels.items())),
        },
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for _, layer in image.layers]},
        "history": [{"created": created, "created_by": what} for what, _ in image.layers],
    }
    for _, layer in image.layers:
        blobs[layer.digest.removeprefix("sha256:")] = layer.path
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": _described(_CONFIG, _json(content), blobs),
        "layers": [
            {"mediaType": _LAYER, "digest": layer.digest, "size": layer.size}
            for _, layer in image.layers
        ],
    }
    return _described(_MANIFEST, _json(manifest), blobs) | {"platform": platform}


def _described(kind: str, content: bytes, blobs: dict[str, bytes | Path]) -> dict[str, object]:
    """Add a blob; returns its descriptor."""
    digest = hashlib.sha256(content).hexdigest()
    blobs[digest] = content
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}


def _add(archive: tarfile.TarFile, path: str, content: bytes | Path, epoch: int) -> None:
    header = tarfile.TarInfo(path)
    header.mtime = epoch
    if isinstance(content, bytes):
        header.size = len(content)
        archive.addfile(header, io.BytesIO(content))
        return
    header.size = content.stat().st_size
    with content.open("rb") as file:
        archive.addfile(header, file)


def _json(content: Mapping[str, object]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()
