"""Byte code beside Python sources, the same bytes in every build.

Containers have a read-only root, so without it each start would compile everything. It is made by
the Python of the images' own base, which runs here from its folder, without being installed; other
architectures have the same byte code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deploy.release.commands import run
from deploy.release.content.debian_lock import PYTHON
from deploy.release.errors import ContentRefused

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.release.oci import Architecture

__all__ = ["compile_sources"]


def compile_sources(root: Path, machine: Architecture, folder: Path, place: str) -> None:
    """Compile every module in `folder`, which is `place` (`/usr/lib/...`) in the image.

    `root` is an unpacked base for this machine. No folder of this machine shows in the byte code,
    and it is never checked against its source. Raises `StepFailed` where a module does not compile.
    """
    libraries = root / machine.libraries
    loaders = sorted(libraries.glob("ld-linux-*.so.*"))
    if len(loaders) != 1:
        msg = f"{libraries} has {len(loaders)} dynamic loaders, expected one"
        raise ContentRefused(msg)
    run(
        [
            *(loaders[0], "--library-path", libraries, root / f"usr/bin/python{PYTHON}"),
            *("-B", "-S", "-s", "-P", "-m", "compileall", "-q"),
            *("--invalidation-mode", "unchecked-hash", "-s", ".", "-p", place, "."),
        ],
        folder=folder,
        environment={
            "PYTHONHOME": str(root / "usr"),
            "PYTHONHASHSEED": "0",
            "LC_ALL": "C.UTF-8",
        },
    )
