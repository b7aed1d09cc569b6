"""Locked Debian packages from a mirror of the machine's, each checked by its hash.

apt's own helper downloads, so that proxies and whatever else apt is set to hold here too. Files are
kept by their hash.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.release.commands import run
from deploy.release.content.debian_lock import SOURCES, debian_sources
from deploy.release.errors import StepFailed
from tests.cluster.programs.cache import cache_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deploy.release.content.debian_lock import DebianPackage

__all__ = ["fetch"]

_HELPER = Path("/usr/lib/apt/apt-helper")


def fetch(packages: Sequence[DebianPackage], say: Callable[[str], None]) -> dict[str, Path]:
    """The files of these packages by SHA-256, downloaded where they are not there.

    Raises `StepFailed` where no mirror has one of them with its hash.
    """
    folder = cache_folder() / "debian"
    folder.mkdir(parents=True, exist_ok=True)
    files = {one.sha256: folder / f"{one.sha256}.deb" for one in packages}
    missing = [one for one in packages if not files[one.sha256].is_file()]
    if missing:
        _download(missing, files, say)
    return files


def _download(
    missing: Sequence[DebianPackage], files: dict[str, Path], say: Callable[[str], None]
) -> None:
    if not _HELPER.is_file():
        msg = f"{_HELPER} is not there: Debian packages need apt, so Debian or Ubuntu"
        raise StepFailed(msg)
    said = ""
    mirrors = list(dict.fromkeys(uri.rstrip("/") for uri, _ in debian_sources()))
    for mirror in mirrors:
        say(f"downloading {len(missing)} Debian packages")
        # Another run may download the same, and another thread too: a package for all architectures
        # is one file.
        with tempfile.TemporaryDirectory(dir=files[missing[0].sha256].parent) as folder:
            partial = {one.sha256: Path(folder) / one.sha256 for one in missing}
            wanted = [
                word
                for one in missing
                for word in (f"{mirror}/{one.path}", partial[one.sha256], f"SHA256:{one.sha256}")
            ]
            try:
                run([_HELPER, "-o", "APT::Sandbox::User=root", "download-file", *wanted])
            except StepFailed as error:  # this mirror lacks some: try the others
                said = str(error).rpartition("expected 0:")[2].strip()
            for sha256, path in partial.items():
                if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == sha256:
                    path.rename(files[sha256])
        missing = [one for one in missing if not files[one.sha256].is_file()]
        if not missing:
            return
    names = ", ".join(f"{one.name} {one.version} ({one.architecture})" for one in missing)
    msg = (
        f"no mirror has {names} as base.lock has it: renew the lock by `make lock`, or name a "
        f"mirror that keeps old versions in {SOURCES}.\n{said}"
    )
    raise StepFailed(msg)
