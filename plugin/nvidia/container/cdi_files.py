"""The CDI specifications of this node, in the folder where container runtimes look for them.

Files are replaced atomically, and only where they change (runtimes read the folder again at every
change); files of ours that no document stands for any more are removed. Those of other vendors are
never touched.

Specifications outlive the plugin on purpose: a container that the kubelet starts again is given the
names that Allocate once answered, whether the plugin runs or not, and its runtime must still find
them.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from plugin.container import cdi_body
from plugin.errors import CdiError
from plugin.nvidia.container.cdi import CDI_VENDOR, IMEX_CLASS
from plugin.nvidia.container.dev_files import find_dev_root
from plugin.nvidia.container.device_nodes import IdStrategy
from plugin.nvidia.container.nvidia_ctk import DriverRoots, NvidiaCtk, find_nvidia_ctk

if TYPE_CHECKING:
    from collections.abc import Iterable

    from plugin.container import CdiDocument

__all__ = ["DEFAULT_FOLDER", "CdiFiles", "CdiGenerator", "CdiRules", "open_cdi_files"]

DEFAULT_FOLDER = Path("/var/run/cdi")
"""Where NVIDIA's plugin writes (k8s-device-plugin v0.20.0, internal/cdi/cdi.go:41), one of the two
folders that CDI's library reads (pkg/cdi/spec-dirs.go); emptied when the machine starts."""

_HERE = Path("/")
_MODE = 0o644
"""As NVIDIA's (nvidia-container-toolkit v1.20.1, pkg/nvcdi/spec/builder.go)."""
_OURS = f"{CDI_VENDOR}-*.json"


class CdiGenerator(Enum):
    """Who makes the texts: NVIDIA's tool, we ourselves, or the tool where there is one."""

    AUTO = "auto"
    NVIDIA_CTK = "nvidia-ctk"
    OWN = "own"


@dataclass(frozen=True, slots=True)
class CdiRules:
    """The settings of CDI. Roots are those of the host; `seen_driver_root` is where we see it."""

    folder: Path = DEFAULT_FOLDER
    generator: CdiGenerator = CdiGenerator.AUTO
    strategy: IdStrategy = IdStrategy.UUID
    hook_path: str = "/usr/bin/nvidia-ctk"
    feature_flags: tuple[str, ...] = ()
    disabled_hooks: tuple[str, ...] = ()
    driver_root: Path = _HERE
    dev_root: Path = _HERE
    seen_driver_root: Path = _HERE


class CdiFiles:
    """Our files in one folder. With a tool it makes the texts, else `cdi` does."""

    def __init__(self, folder: Path = DEFAULT_FOLDER, *, tool: NvidiaCtk | None = None) -> None:
        self._folder = folder
        self._tool = tool

    def write(self, documents: Iterable[CdiDocument]) -> None:
        """Have exactly these documents in the folder, of ours.

        Raises `CdiError`; then files that were there before are there still.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            texts = {document.file_name: self._text(document) for document in documents}
            for name, text in texts.items():
                self._replace(self._folder / name, text)
            for path in self._folder.glob(_OURS):
                if path.name not in texts:
                    path.unlink(missing_ok=True)
        except OSError as error:
            msg = f"CDI specifications in {self._folder} cannot be written: {error}"
            raise CdiError(msg) from error

    def _text(self, document: CdiDocument) -> str:
        """NVIDIA's plugin too describes IMEX channels itself (internal/cdi/imex.go)."""
        if self._tool is None or document.cdi_class == IMEX_CLASS:
            return json.dumps(cdi_body(document), indent=2) + "\n"
        # Runtimes do not look into folders (pkg/cdi/spec-dirs.go, `scanSpecDirs`).
        with tempfile.TemporaryDirectory(dir=self._folder, prefix=".coterie-") as folder:
            return self._tool.specification(document.cdi_class, Path(folder))

    def _replace(self, path: Path, text: str) -> None:
        if path.is_file() and path.read_bytes() == text.encode():
            return
        beside = path.with_name(f"{path.name}.tmp")
        beside.write_text(text, encoding="utf-8")
        beside.chmod(_MODE)
        beside.replace(path)


def open_cdi_files(rules: CdiRules) -> CdiFiles:
    """Find the tool that the rules ask for, if any.

    Raises `CdiError` where it is not there and nothing else will do.
    """
    program = None if rules.generator is CdiGenerator.OWN else find_nvidia_ctk()
    if program is None:
        if (
            rules.generator is CdiGenerator.NVIDIA_CTK
            or rules.feature_flags
            or rules.disabled_hooks
        ):
            msg = (
                "settings cdi_generator, cdi_feature_flags, cdi_disable_hooks request nvidia-ctk, "
                "expected it on the path of programs"
            )
            raise CdiError(msg)
        return CdiFiles(rules.folder)
    seen = rules.seen_driver_root if rules.seen_driver_root.is_dir() else _HERE
    tool = NvidiaCtk(
        program,
        DriverRoots(rules.driver_root, rules.dev_root, seen, find_dev_root(seen, _HERE)),
        hook_path=rules.hook_path,
        strategy=rules.strategy,
        feature_flags=rules.feature_flags,
        disabled_hooks=rules.disabled_hooks,
    )
    return CdiFiles(rules.folder, tool=tool)
