"""Which of NVIDIA's device nodes exist beside those of the GPUs, and where its library is.

Reads the folders /dev and /proc as this process sees them, and the driver's root where it has its
own.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from plugin.errors import ReadingError
from plugin.nvidia.container.device_nodes import CONTROL_NODES, Extra, PresentNodes, imex_node

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["find_dev_root", "find_nodes", "find_nvml"]

_MIG_MINORS = "driver/nvidia-caps/mig-minors"
"""Of /proc (k8s-device-plugin v0.20.0, internal/mig/mig.go, `nvcapsMigMinorsPath`)."""
_NVML = "libnvidia-ml.so.1"
_LIBRARY_FOLDERS = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "glibc/lib",
)
"""In this order (cmd/nvidia-device-plugin/root.go, `tryResolveLibrary`)."""
_CAPABILITY = re.compile(r"(\S+) ([0-9]+)")
"""One line of that file, such as `gpu0/gi1/access 30`; NVIDIA's plugin skips others too."""


def find_dev_root(driver_root: Path, otherwise: Path) -> Path:
    """Where the folder /dev of the machine is seen: in the driver's root, if that has one.

    (k8s-device-plugin v0.20.0, cmd/nvidia-device-plugin/root.go, `getDevRoot`.)
    """
    return driver_root if (driver_root / "dev").is_dir() else otherwise


def find_nvml(driver_root: Path) -> Path | None:
    """NVML's library inside the driver's root; None: leave it to the loader's own search.

    (cmd/nvidia-device-plugin/root.go, `tryResolveLibrary`, which does not look into `/` either.)
    """
    if driver_root == driver_root.parent:
        return None
    found = (driver_root / folder / _NVML for folder in _LIBRARY_FOLDERS)
    return next((path.resolve() for path in found if path.is_file()), None)


def find_nodes(
    dev_root: Path,
    proc: Path,
    *,
    extras: Iterable[Extra] = (),
    imex_channels: Iterable[int] = (),
    is_imex_required: bool = False,
) -> PresentNodes:
    """Find the nodes under `dev_root`/dev; of extras and IMEX channels only those requested.

    Raises `ReadingError` where a required IMEX channel has no device node.
    """
    channels: list[int] = []
    for channel in imex_channels:
        if _under(dev_root, imex_node(channel)).is_char_device():
            channels.append(channel)
        elif is_imex_required:
            msg = (
                f"IMEX channel {channel} is required, expected the device node "
                f"{_under(dev_root, imex_node(channel))}"
            )
            raise ReadingError(msg)
    found = {extra: _matching(dev_root, extra) for extra in extras}
    return PresentNodes(
        control=tuple(n for n in CONTROL_NODES if _under(dev_root, n).is_char_device()),
        capabilities=_capabilities(proc / _MIG_MINORS),
        imex_channels=tuple(channels),
        extras={extra: nodes for extra, nodes in found.items() if nodes},
    )


def _under(root: Path, node: str) -> Path:
    return root / node.lstrip("/")


def _matching(root: Path, extra: Extra) -> tuple[str, ...]:
    paths = (path for p in extra.patterns for path in root.glob(p.lstrip("/")))
    return tuple(sorted(f"/{path.relative_to(root)}" for path in paths if path.is_char_device()))


def _capabilities(path: Path) -> dict[str, int]:
    """Empty where the driver has no such file: then nothing there is capable of MIG."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    found = (_CAPABILITY.fullmatch(line.strip()) for line in lines)
    return {match[1]: int(match[2]) for match in found if match is not None}
