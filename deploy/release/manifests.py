"""The chart and the plain manifests as archives that a release carries, and krew's manifest.

`helm package` dates its files by the clock, so the chart is packed here. The folder in the checkout
has no version; the archive gets that of the release.
"""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING

from deploy.release.errors import ContentRefused
from deploy.release.oci import File, Folder, folder_tree, pack

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from deploy.release.checkout import Identity
    from deploy.release.oci import Entry, Packed

__all__ = ["krew_manifest", "pack_chart", "pack_manifests"]

_NOT_MANIFESTS = ("release", "chart", "krew")
_KINDS = (".yaml", ".json")
"""Endings of manifests, rules and dashboards; the rest is code, and what running it leaves."""


def pack_chart(chart: Path, identity: Identity, target: Path) -> Packed:
    """Pack a chart's folder under its own name, with the version of the release.

    Leaves out what `.helmignore` names; of that file's syntax it takes names, globs and folders.
    Raises `ContentRefused` for anything else there, and where Chart.yaml has no version.
    """
    text = (chart / "Chart.yaml").read_text(encoding="utf-8")
    name = _field(text, "name")
    for key, value in (
        ("version", identity.chart_version),
        ("appVersion", identity.image_tag),
    ):
        _field(text, key)
        text = re.sub(rf"^{key}:.*$", f'{key}: "{value}"', text, flags=re.MULTILINE)
    ignored = _ignored(chart / ".helmignore")
    tree: dict[str, Entry] = {
        f"{name}/{path}": entry
        for path, entry in folder_tree(chart).items()
        if not isinstance(entry, Folder) and not _is_ignored(path, ignored)
    }
    tree[f"{name}/Chart.yaml"] = File(text.encode())
    return pack(tree, target, epoch=identity.epoch)


def pack_manifests(deploy: Path, identity: Identity, target: Path) -> Packed:
    """Pack deploy/ but for the chart: kustomizations, scheduler configurations, monitoring."""
    tree = {
        f"deploy/{path}": entry
        for path, entry in folder_tree(deploy).items()
        if path.partition("/")[0] not in _NOT_MANIFESTS
        and path.endswith(_KINDS)
        and not isinstance(entry, Folder)
    }
    return pack(tree, target, epoch=identity.epoch)


def krew_manifest(manifest: Path, identity: Identity, digests: Mapping[str, str]) -> str:
    """The manifest for krew with the version of the release and its archives' SHA-256 digests.

    `digests` are by architecture; the platforms of others are left out. The addresses stay
    the placeholders of the manifest. Raises `ContentRefused` where the manifest lacks a platform.
    """
    text = manifest.read_text(encoding="utf-8").replace("v0.0.0", f"v{identity.chart_version}")
    head, *platforms = re.split(r"^(?=    - selector:)", text, flags=re.MULTILINE)
    written: list[str] = []
    for name, digest in digests.items():
        own = [one for one in platforms if f"arch: {name}}}" in one]
        if len(own) != 1:
            msg = f"{manifest} has {len(own)} platforms for {name}, expected one"
            raise ContentRefused(msg)
        written.append(re.sub(r'(?<=sha256: ")0{64}(?=")', digest, own[0]))
    return head + "".join(written)


def _field(text: str, key: str) -> str:
    found = re.search(rf"^{key}: *\"?([^\"\s#]+)\"?", text, re.MULTILINE)
    if found is None:
        msg = f"Chart.yaml has no field {key!r}, expected one in a line of its own"
        raise ContentRefused(msg)
    return found[1]


def _ignored(file: Path) -> list[str]:
    if not file.is_file():
        return []
    lines = (line.strip() for line in file.read_text(encoding="utf-8").splitlines())
    patterns = [line for line in lines if line and not line.startswith("#")]
    for pattern in patterns:
        if pattern.startswith(("!", "/")) or "/" in pattern.rstrip("/") or "**" in pattern:
            msg = f"{file}: pattern {pattern!r}, expected a name, a glob or a folder"
            raise ContentRefused(msg)
    return [pattern.rstrip("/") for pattern in patterns]


def _is_ignored(path: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatch(part, one) for part in path.split("/") for one in patterns)
