"""The processor architectures that images are made for, as each tool calls them."""

from __future__ import annotations

import platform
from dataclasses import dataclass

from deploy.release.errors import ContentRefused

__all__ = ["ARCHITECTURES", "Architecture", "architecture", "machine_architecture"]


@dataclass(frozen=True, slots=True)
class Architecture:
    """One of Linux' architectures."""

    name: str
    """As OCI, Debian and Go have it."""
    machine: str
    """As the kernel has it (`uname -m`)."""
    variant: str | None = None
    """OCI's variant; containerd gives arm64 this one where an image names none."""

    @property
    def libraries(self) -> str:
        """Debian's folder of shared libraries."""
        return f"usr/lib/{self.machine}-linux-gnu"

    @property
    def wheels(self) -> str:
        """What wheels may need, as uv has it: glibc 2.28, for which all locked ones are made."""
        return f"{self.machine}-manylinux_2_28"


ARCHITECTURES = (Architecture("amd64", "x86_64"), Architecture("arm64", "aarch64", variant="v8"))


def architecture(name: str) -> Architecture:
    """The architecture of that name; raises `ContentRefused`."""
    for one in ARCHITECTURES:
        if one.name == name:
            return one
    known = ", ".join(one.name for one in ARCHITECTURES)
    msg = f"architecture {name!r} is not supported, expected one of {known}"
    raise ContentRefused(msg)


def machine_architecture() -> Architecture:
    """That of this machine; raises `ContentRefused` where no image is made for it."""
    machine = platform.machine()
    for one in ARCHITECTURES:
        if one.machine == machine:
            return one
    known = ", ".join(one.machine for one in ARCHITECTURES)
    msg = f"this machine is {machine!r}, expected one of {known}"
    raise ContentRefused(msg)
