"""Images of one static program for the tests on a real kubelet, without a registry.

The workload is one, kube-scheduler for an installation another. Writes an archive that containerd
imports (OCI image layout, image-spec v1.1). The same program makes the same archive, byte for byte.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import tarfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["IMAGE", "write_archive"]

IMAGE = "coterie.test/workload:1"
"""Its name; `latest` would make the kubelet contact a registry each time."""

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_INDEX = "application/vnd.oci.image.index.v1+json"
_NAME = "io.containerd.image.name"
"""Annotation by which containerd names what it imports (containerd, images/annotations.go)."""
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def write_archive(program: Path, target: Path, image: str = IMAGE) -> Path:
    """Write the image of that program into a file; returns the file. The program is on its PATH."""
    layer = _tar({f"bin/{program.name}": program.read_bytes()}, mode=0o755)
    packed = gzip.compress(layer, compresslevel=1, mtime=0)
    machine = platform.machine()
    config = _json(
        {
            "architecture": _ARCHITECTURES.get(machine, machine),
            "os": "linux",
            "config": {"Entrypoint": [f"/bin/{program.name}"], "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _descriptor(_CONFIG, config),
            "layers": [_descriptor(_LAYER, packed)],
        }
    )
    named = _descriptor(_MANIFEST, manifest) | {"annotations": {_NAME: image}}
    index = _json({"schemaVersion": 2, "mediaType": _INDEX, "manifests": [named]})
    files = {"oci-layout": _json({"imageLayoutVersion": "1.0.0"}), "index.json": index}
    for blob in (config, packed, manifest):
        files[f"blobs/sha256/{_digest(blob).removeprefix('sha256:')}"] = blob
    target.write_bytes(_tar(files, mode=0o644))
    return target


def _tar(files: Mapping[str, bytes], *, mode: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _descriptor(kind: str, content: bytes) -> dict[str, object]:
    return {"mediaType": kind, "digest": _digest(content), "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _json(content: Mapping[str, object]) -> bytes:
    return json.dumps(content).encode()
