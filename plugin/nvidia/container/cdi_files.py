"""The CDI specifications of this node, in the folder where container runtimes look for them.

Files are replaced atomically, and only where they change (runtimes read the folder again at every
change); files of ours that no document stands for any more are removed. Those of other vendors are
never touched. NVIDIA's plugin writes files of the same names, so what was written here is recorded
beside them (`plugin.nvidia.container.written_files`).

Specifications outlive the plugin on purpose: a container that the kubelet starts again is given the
names that Allocate once answered, whether the plugin runs or not, and its runtime must still find
them.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from plugin.container import cdi_body
from plugin.errors import CdiError
from plugin.nvidia.container.cdi import IMEX_CLASS
from plugin.nvidia.container.dev_files import find_dev_root
from plugin.nvidia.container.nvidia_ctk import CtkOptions, DriverRoots, NvidiaCtk, find_nvidia_ctk
from plugin.nvidia.container.written_files import (
    OURS,
    PRIVATE,
    RECORD,
    UNFINISHED,
    record_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from plugin.container import CdiDocument

__all__ = [
    "DEFAULT_FOLDER",
    "DEFAULT_TOOLKIT",
    "CdiFiles",
    "CdiGenerator",
    "CdiRules",
    "open_cdi_files",
]

DEFAULT_FOLDER = Path("/var/run/cdi")
"""Where NVIDIA's plugin writes (k8s-device-plugin v0.20.0, internal/cdi/cdi.go:41), one of the two
folders that CDI's library reads (pkg/cdi/spec-dirs.go); emptied when the machine starts."""

DEFAULT_TOOLKIT = Path("/usr/local/nvidia/toolkit")
"""Where the GPU operator installs the toolkit on the host (gpu-operator v26.7,
controllers/object_controls.go, `toolkit.installDir`)."""
_HERE = Path("/")
_MODE = 0o644
"""As NVIDIA's (nvidia-container-toolkit v1.20.1, pkg/nvcdi/spec/builder.go)."""


class CdiGenerator(Enum):
    """Who makes the texts: NVIDIA's tool, we ourselves, or the tool where there is one."""

    AUTO = "auto"
    NVIDIA_CTK = "nvidia-ctk"
    OWN = "own"


@dataclass(frozen=True, slots=True)
class CdiRules:
    """The settings of CDI. Roots are those of the host.

    `seen_driver_root` and `toolkit` are where we see the driver's root and the host's toolkit.
    """

    folder: Path = DEFAULT_FOLDER
    generator: CdiGenerator = CdiGenerator.AUTO
    options: CtkOptions = field(default_factory=CtkOptions)
    driver_root: Path = _HERE
    dev_root: Path = _HERE
    seen_driver_root: Path = _HERE
    toolkit: Path = DEFAULT_TOOLKIT


class CdiFiles:
    """Our files in one folder. With a tool it makes the texts, else `cdi` does."""

    def __init__(self, folder: Path = DEFAULT_FOLDER, *, tool: NvidiaCtk | None = None) -> None:
        self._folder = folder
        self._tool = tool

    def write(self, documents: Iterable[CdiDocument]) -> dict[str, str]:
        """Have exactly these documents in the folder, of ours; their texts by class.

        Raises `CdiError`; then files that were there before are there still.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            texts = {document: self._text(document) for document in documents}
            for document, text in texts.items():
                self._replace(self._folder / document.file_name, text)
            names = {document.file_name for document in texts}
            for path in self._folder.glob(OURS):
                if path.name not in names:
                    path.unlink(missing_ok=True)
            self._record({document.file_name: text for document, text in texts.items()})
        except OSError as error:
            msg = f"CDI specifications in {self._folder} cannot be written: {error}"
            raise CdiError(msg) from error
        return {document.cdi_class: text for document, text in texts.items()}

    def _text(self, document: CdiDocument) -> str:
        """NVIDIA's plugin too describes IMEX channels itself (internal/cdi/imex.go)."""
        if self._tool is None or document.cdi_class == IMEX_CLASS:
            return json.dumps(cdi_body(document), indent=2) + "\n"
        # Runtimes do not look into folders (pkg/cdi/spec-dirs.go, `scanSpecDirs`).
        with tempfile.TemporaryDirectory(dir=self._folder, prefix=PRIVATE) as folder:
            return self._tool.specification(document.cdi_class, Path(folder))

    def _record(self, texts: Mapping[str, str]) -> None:
        path = self._folder / RECORD
        if texts:
            self._replace(path, record_text(texts))
        else:
            path.unlink(missing_ok=True)

    def _replace(self, path: Path, text: str) -> None:
        if path.is_file() and path.read_bytes() == text.encode():
            return
        beside = path.with_name(f"{path.name}{UNFINISHED}")
        beside.write_text(text, encoding="utf-8")
        beside.chmod(_MODE)
        beside.replace(path)


def open_cdi_files(rules: CdiRules) -> CdiFiles:
    """Find the tool that the rules require, if any.

    Raises `CdiError` where it is not there and nothing else will do.
    """
    is_own = rules.generator is CdiGenerator.OWN
    program = None if is_own else find_nvidia_ctk(rules.toolkit)
    if program is None:
        if (
            rules.generator is CdiGenerator.NVIDIA_CTK
            or rules.options.feature_flags
            or rules.options.disabled_hooks
        ):
            msg = (
                "settings cdi_generator, cdi_feature_flags, cdi_disable_hooks request nvidia-ctk, "
                f"expected it on the path of programs or in {rules.toolkit}"
            )
            raise CdiError(msg)
        return CdiFiles(rules.folder)
    seen = rules.seen_driver_root if rules.seen_driver_root.is_dir() else _HERE
    tool = NvidiaCtk(
        program,
        DriverRoots(rules.driver_root, rules.dev_root, seen, find_dev_root(seen, _HERE)),
        rules.options,
    )
    return CdiFiles(rules.folder, tool=tool)
