"""Programs of the machine's distribution: runc, which is C as well as Go, nft, what builds images.

Returns the machine's own, else one of packages that apt-get fetches and that are unpacked into the
cache: nothing is installed, and no script of theirs runs. What builds images is installed instead,
since its own programs look for each other and for their configuration in the system's folders.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster.programs.cache import cache_folder, made_once

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Nft", "ProgramMissing", "find_nft", "find_runc", "install_packages"]

_FETCHED = Path("usr/sbin")
"""Where Debian and Ubuntu have both programs in their packages."""
_LIBRARIES = Path("usr/lib")
_SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin")
_NFT_PACKAGES = ("nftables", "libnftables1", "libnftnl11", "libjansson4", "libxtables12", "libmnl0")
"""nft with what it links that a minimal installation lacks."""
_RUNS_WITHIN_S = 300


class ProgramMissing(Exception):
    """The machine lacks a program, and it could not be fetched; the message says why."""


@dataclass(frozen=True, slots=True)
class Nft:
    """nft, which kube-proxy runs by that name."""

    program: Path

    @property
    def environment(self) -> dict[str, str]:
        """With which whoever runs it by its name finds it and its libraries."""
        libraries = self.program.parents[2] / _LIBRARIES / f"{platform.machine()}-linux-gnu"
        own = {} if self.program.is_relative_to("/usr") else {"LD_LIBRARY_PATH": str(libraries)}
        path = os.environ.get("PATH", os.defpath)
        return own | {"PATH": f"{self.program.parent}{os.pathsep}{path}"}


def find_runc(say: Callable[[str], None]) -> Path:
    """The machine's own, else that of its distribution. Raises `ProgramMissing`."""
    return _find("runc", ("runc",), say)


def find_nft(say: Callable[[str], None]) -> Nft:
    """The machine's own, else that of its distribution. Raises `ProgramMissing`."""
    return Nft(_find("nft", _NFT_PACKAGES, say))


def install_packages(*programs: str, say: Callable[[str], None]) -> None:
    """Install packages that are called as their programs, where one is missing: apt-get, as root.

    Raises `ProgramMissing`.
    """
    missing = [name for name in programs if shutil.which(name) is None]
    if not missing:
        return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        msg = f"{', '.join(missing)}: not here, and no apt-get that we may install it with"
        raise ProgramMissing(msg)
    say(f"installing {', '.join(missing)}")
    _run(["apt-get", "update", "--quiet"], Path("/"))
    install = ["apt-get", "install", "--quiet", "--yes", "--no-install-recommends", *missing]
    if (done := _run(install, Path("/"))).returncode != 0:
        msg = f"apt-get could not install {', '.join(missing)}:\n{done.stdout[-2000:]}"
        raise ProgramMissing(msg)


def _find(name: str, packages: Sequence[str], say: Callable[[str], None]) -> Path:
    own = shutil.which(name, path=os.pathsep.join([*os.get_exec_path(), *_SYSTEM_FOLDERS]))
    if own is not None:
        return Path(own)
    fetched = _unpacked(name, packages, say) / _FETCHED / name
    if not fetched.is_file():
        msg = f"{', '.join(packages)}: no {_FETCHED / name} inside"
        raise ProgramMissing(msg)
    return fetched


def _unpacked(name: str, packages: Sequence[str], say: Callable[[str], None]) -> Path:
    """The folder that stands for `/` of these packages, made once for each name and distribution.

    Raises `ProgramMissing`.
    """
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        msg = f"{name} is not here, and there is no apt-get to fetch it with"
        raise ProgramMissing(msg)
    system = platform.freedesktop_os_release()
    release = f"{system['ID']}-{system.get('VERSION_ID', 'rolling')}-{platform.machine()}"
    make = partial(_fetch, name, packages, say=say)
    return made_once(cache_folder() / f"{name}-{release}", make, say)


def _fetch(name: str, packages: Sequence[str], folder: Path, *, say: Callable[[str], None]) -> None:
    """Download the packages and unpack them, as whoever may; installing would take root."""
    say(f"no {name} here: fetching its package")
    download = ["apt-get", "download", "--quiet", *packages]
    done = _run(download, folder)
    if done.returncode != 0:  # a machine whose package lists are missing or old
        _run(["apt-get", "update", "--quiet"], folder)
        done = _run(download, folder)
    archives = sorted(folder.glob("*.deb"))
    if done.returncode != 0 or not archives:
        msg = f"apt-get could not download {name}:\n{done.stdout[-2000:]}"
        raise ProgramMissing(msg)
    for archive in archives:
        unpacked = _run(["dpkg-deb", "--extract", str(archive), str(folder)], folder)
        if unpacked.returncode != 0:
            msg = f"{archive.name} does not unpack:\n{unpacked.stdout[-2000:]}"
            raise ProgramMissing(msg)
        archive.unlink()


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=_RUNS_WITHIN_S,
    )
