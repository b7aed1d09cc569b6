"""What each program of this distribution does first: say its version, or what is not installed.

It imports nothing but the standard library.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from importlib import metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["needs_extra", "version"]

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
            f"in a checkout, pip install '.[{extra}]'"
        )


def version() -> str:
    """Return the version of the installed distribution; `unknown` in a bare folder of sources."""
    try:
        return metadata.version("coterie")
    except metadata.PackageNotFoundError:
        return "unknown"
