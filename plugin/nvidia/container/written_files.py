"""Which CDI specifications on this node are as Coterie wrote them.

NVIDIA's plugin writes files of the same names (k8s-device-plugin v0.20.0, internal/cdi/cdi.go), so
that a name does not say whose a file is. Whoever writes specifications records the SHA-256 of each
in a hidden file beside them; a file that differs from its record is another program's.
"""

from __future__ import annotations

import hashlib
import json
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from kube.errors import Unreadable
from plugin.errors import CdiError
from plugin.machine import WrittenFiles
from plugin.nvidia.container.cdi import CDI_VENDOR
from topology.model import parse_object, text_at

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["OURS", "PRIVATE", "RECORD", "UNFINISHED", "record_text", "written_files"]

OURS = f"{CDI_VENDOR}-*.json"
"""Pattern of the names that specifications have here and in NVIDIA's plugin."""
PRIVATE = ".coterie-"
"""Begins every other name in the folder that is ours."""
RECORD = f"{PRIVATE}written"
"""The file of the record: a JSON object from file name to SHA-256. Runtimes read files that end in
.json or .yaml only (container-device-interface v1.1.1, pkg/cdi/spec-dirs.go, `scanSpecDirs`)."""
UNFINISHED = ".tmp"
"""Ends the name of a file that is not whole yet."""


def record_text(texts: Mapping[str, str]) -> str:
    """The record of these texts, by file name."""
    digests = {name: _digest(text.encode()) for name, text in sorted(texts.items())}
    return json.dumps(digests, indent=2) + "\n"


def written_files(folder: Path) -> WrittenFiles:
    """What Coterie's plugin left in the folder; nothing where there is no such folder.

    Raises `CdiError` where it cannot be read.
    """
    try:
        paths = sorted(folder.iterdir()) if folder.exists() else []
        named = [path for path in paths if fnmatchcase(path.name, OURS) and path.is_file()]
        digests = _recorded(folder / RECORD)
        own = [path for path in named if _digest(path.read_bytes()) == digests.get(path.name)]
        private = [path for path in paths if path.name.startswith(PRIVATE)]
        unused = [path for path in paths if fnmatchcase(path.name, f"{OURS}{UNFINISHED}")]
        for path in private:
            unused += [*(sorted(path.iterdir()) if path.is_dir() else ()), path]
        if own:  # whoever keeps the files keeps their record
            unused.remove(folder / RECORD)
            own.append(folder / RECORD)
    except OSError as error:
        msg = f"CDI specifications in {folder} cannot be read: {error.strerror}"
        raise CdiError(msg) from error
    return WrittenFiles(
        own=tuple(map(str, own)),
        unused=tuple(map(str, unused)),
        changed=tuple(str(path) for path in named if path not in own),
    )


def _recorded(path: Path) -> dict[str, str]:
    """Digests by file name; none where the record is missing or damaged."""
    try:
        found = parse_object(path.read_bytes())
        return {name: text_at(found, name) for name in found}
    except (FileNotFoundError, Unreadable):
        return {}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
