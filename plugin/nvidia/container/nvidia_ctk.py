"""CDI specifications by NVIDIA's own tool, where it is installed.

`nvidia-ctk cdi generate` knows the driver's libraries and the hooks that a container needs;
`plugin.nvidia.container.cdi` knows device nodes alone.

Flags are those of nvidia-container-toolkit v1.20.1, cmd/nvidia-ctk/cdi/generate/generate.go and
cdi/transform/root/root.go. Like NVIDIA's plugin (k8s-device-plugin v0.20.0, internal/cdi/cdi.go,
`getRootTransformer`) the tool reads the driver where this process sees it, and the paths are then
turned into those of the host.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from plugin.errors import CdiError, ProgramError
from plugin.nvidia.container.cdi import CDI_VENDOR, GPU_CLASS
from plugin.nvidia.container.device_nodes import IdStrategy
from plugin.programs import run_program

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CtkOptions", "DriverRoots", "NvidiaCtk", "find_nvidia_ctk"]

PROGRAM = "nvidia-ctk"
TIMEOUT_S = 60.0
"""It starts NVML and looks for some hundred files; NVML alone can take 30 s on a faulty
machine (k8s-device-plugin issue 774)."""


@dataclass(frozen=True, slots=True)
class DriverRoots:
    """Where the driver's files and /dev lie: on the host, and as this process sees them."""

    driver: Path = Path("/")
    dev: Path = Path("/")
    seen_driver: Path = Path("/")
    seen_dev: Path = Path("/")

    @property
    def moves(self) -> tuple[tuple[Path, Path], ...]:
        """From where to where paths are to be turned, in this order."""
        moves = [(self.seen_driver, self.driver)]
        if self.seen_dev != self.seen_driver:
            moves.append((self.seen_dev / "dev", self.dev / "dev"))
        return tuple((seen, host) for seen, host in moves if seen != host)


@dataclass(frozen=True, slots=True)
class CtkOptions:
    """What a specification is to hold. `hook_path` is that of NVIDIA's CDI hook on the host."""

    hook_path: str = "/usr/bin/nvidia-ctk"
    strategy: IdStrategy = IdStrategy.UUID
    feature_flags: tuple[str, ...] = ()
    disabled_hooks: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """The flags that do not depend on the machine."""
        return (
            f"--nvidia-cdi-hook-path={self.hook_path}",
            *(f"--feature-flag={flag}" for flag in self.feature_flags),
            *(f"--disable-hook={hook}" for hook in self.disabled_hooks),
        )


@dataclass(frozen=True, slots=True)
class NvidiaCtk:
    """The tool and how it is run."""

    program: Path
    roots: DriverRoots = field(default_factory=DriverRoots)
    options: CtkOptions = field(default_factory=CtkOptions)
    timeout_s: float = TIMEOUT_S

    def specification(self, cdi_class: str, folder: Path) -> str:
        """Make the specification of a class, using `folder` for files that are gone afterwards.

        Raises `CdiError`.
        """
        output = folder / f"{cdi_class}.json"
        self._run(self._generate(cdi_class, output))
        for seen, host in self.roots.moves:
            self._run(
                (
                    *("cdi", "transform", "root", "--relative-to=host"),
                    *(f"--from={seen}", f"--to={host}", f"--input={output}", f"--output={output}"),
                )
            )
        try:
            return output.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            msg = f"{PROGRAM} left no specification of class {cdi_class}: {error}"
            raise CdiError(msg) from error

    def _generate(self, cdi_class: str, output: Path) -> tuple[str, ...]:
        """The class of an extra is also the mode that finds it; GPUs need none."""
        mode = () if cdi_class == GPU_CLASS else (f"--mode={cdi_class}",)
        return (
            *("cdi", "generate", f"--output={output}", "--format=json", *mode),
            *(f"--vendor={CDI_VENDOR}", f"--class={cdi_class}"),
            f"--device-name-strategy={self.options.strategy.value}",
            *(f"--driver-root={self.roots.seen_driver}", f"--dev-root={self.roots.seen_dev}"),
            *self.options.words,
        )

    def _run(self, arguments: Sequence[str]) -> None:
        try:
            run_program([str(self.program), *arguments], timeout_s=self.timeout_s)
        except ProgramError as error:
            msg = f"{PROGRAM} {' '.join(arguments[:2])}: {error}"
            raise CdiError(msg) from error


def find_nvidia_ctk(toolkit: Path) -> Path | None:
    """The tool: on the path of programs, else in this folder.

    What the GPU operator installs there as `nvidia-ctk` is a shell script that calls
    `nvidia-ctk.real` (toolkit v1.20.1, cmd/nvidia-ctk-installer/toolkit/installer/executables.go);
    an image without a shell runs that at once.
    """
    found = shutil.which(PROGRAM)
    if found is not None:
        return Path(found)
    places = (toolkit / f"{PROGRAM}.real", toolkit / PROGRAM)
    return next((place for place in places if place.is_file()), None)
