"""What all programs of this distribution share: how options are read, version, missing extras.

It imports nothing but the standard library.
"""

from __future__ import annotations

import argparse
import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["Parser", "needs_extra", "version"]

_OWN = frozenset({"extender", "kube", "plugin", "topology"})
_ARGUMENT = re.compile(r"^argument (\S+): ")


class Parser(argparse.ArgumentParser):
    """Takes no abbreviated options, and says what is wrong without a page of usage."""

    def __init__(self, **options: object) -> None:
        usage = {"allow_abbrev": False, "formatter_class": argparse.RawDescriptionHelpFormatter}
        super().__init__(**usage | options)  # type: ignore[arg-type]  # argparse's own keywords

    def error(self, message: str) -> NoReturn:
        """End with exit code 2 and one sentence."""
        said = _ARGUMENT.sub(r"\1: ", message)
        self.exit(2, f"error: {said} (see {self.prog} --help)\n")


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
    from importlib import metadata  # noqa: PLC0415 - takes longer to import than all else here

    try:
        return metadata.version("coterie")
    except metadata.PackageNotFoundError:
        return "unknown"
