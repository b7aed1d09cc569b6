"""Layers that are made once per content and kept outside the checkout.

The folder is that of the test clusters' programs (`tests.cluster.programs.cache`). A layer is kept
packed, with the names and versions of what is in it; its key must cover all that goes into it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.release.oci import Packed, pack
from tests.cluster.programs.cache import cache_folder, made_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from deploy.release.oci import Tree

__all__ = ["CachedLayer", "Component", "cached_layer", "content_key"]


@dataclass(frozen=True, slots=True)
class Component:
    """A package in a layer."""

    name: str
    version: str
    licence: str = ""
    """As the package itself says; empty where it does not."""


@dataclass(frozen=True, slots=True)
class CachedLayer:
    """A packed layer and the packages in it."""

    folder: Path
    """What it was made of, where that is kept."""
    packed: Packed
    components: tuple[Component, ...]


def cached_layer(
    name: str,
    key: str,
    make: Callable[[Path], tuple[Tree, Iterable[Component]]],
    say: Callable[[str], None],
    *,
    keeps_folder: bool = False,
) -> CachedLayer:
    """The layer of that name and key, made where it is not there.

    `make` gets an empty folder and returns the tree and what is in it. `keeps_folder` keeps that
    folder beside the layer.
    """

    def fill(folder: Path) -> None:
        work = folder / "work"
        work.mkdir()
        tree, components = make(work)
        packed = pack(tree, folder / "layer.tar.gz")
        content = {
            "layer": asdict(packed) | {"path": "layer.tar.gz"},
            "components": [asdict(one) for one in components],
        }
        (folder / "layer.json").write_text(json.dumps(content), encoding="utf-8")
        if not keeps_folder:
            shutil.rmtree(work)

    folder = made_once(cache_folder() / f"layer-{name}-{key}", fill, say)
    content = json.loads((folder / "layer.json").read_text(encoding="utf-8"))
    layer = content["layer"]
    return CachedLayer(
        folder=folder / "work",
        packed=Packed(**(layer | {"path": folder / layer["path"]})),
        components=tuple(Component(**one) for one in content["components"]),
    )


def content_key(*parts: str | bytes | Path) -> str:
    """A name for that content: of texts, bytes and files."""
    content = hashlib.sha256()
    for part in parts:
        data = part.read_bytes() if isinstance(part, Path) else part
        data = data.encode() if isinstance(data, str) else data
        content.update(hashlib.sha256(data).digest())
    return content.hexdigest()[:16]
