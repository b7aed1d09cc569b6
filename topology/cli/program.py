"""What each program of this distribution does first: say its version, or what is not installed.

It imports nothing but the standard library.
"""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from importlib import metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["build_labels", "needs_extra", "version"]

_OWN = frozenset({"extender", "kube", "plugin", "topology"})


@contextmanager
def needs_extra(program: str, extra: str) -> Generator[None]:
    """End with a sentence and exit code 1 where imports inside lack a dependency."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in _OWN:
            raise
        sys.exit(
            f"{program} needs its dependencies ({error.name} is not installed): "
            f"pip install 'coterie[{extra}]'"
        )


def build_labels() -> dict[str, str]:
    """Version and revision apart: of `0.2.1.dev5+g7ef49e1`, or `v0.2.0-5-g7ef49e1` (git describe).

    >>> sorted(build_labels())
    ['revision', 'version']
    """
    release, *revision = re.split(r"(?:\+|-\d+-)g(?=[0-9a-f])", version(), maxsplit=1)
    return {"version": release, "revision": "".join(revision)}


def version() -> str:
    """Return the version of the installed distribution; `unknown` in a bare folder of sources."""
    try:
        return metadata.version("coterie")
    except metadata.PackageNotFoundError:
        return "unknown"
