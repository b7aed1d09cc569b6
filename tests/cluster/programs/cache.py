"""Folders that are made once and kept outside the checkout: builds, a toolchain.

Returns the folder, made if it is not there. It appears whole or not at all, and two runs never make
the same one twice: the second waits for the first.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["cache_folder", "made_once"]


def cache_folder() -> Path:
    """Where they are kept: `$COTERIE_CACHE`, else `coterie` in the user's cache folder."""
    own = os.environ.get("COTERIE_CACHE")
    if own:
        return Path(own).absolute()
    users = os.environ.get("XDG_CACHE_HOME")
    return (Path(users) if users else Path.home() / ".cache") / "coterie"


def made_once(folder: Path, make: Callable[[Path], None], say: Callable[[str], None]) -> Path:
    """The folder, which `make` fills where it is not there yet; whatever `make` raises escapes.

    `make` works on another path, which a rename turns into `folder`: what a killed run left behind
    is never taken for a result.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _lock(folder.with_name(folder.name + ".lock"), say):
        if not folder.is_dir():
            partial = folder.with_name(folder.name + ".partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            make(partial)
            partial.rename(folder)
    return folder


@contextmanager
def _lock(path: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold a lock that the kernel lets go of should this process die."""
    with path.open("w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another run makes {path.with_suffix('')}: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
