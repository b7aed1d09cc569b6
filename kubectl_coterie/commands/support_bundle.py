"""`kubectl coterie support-bundle`: what a maintainer needs to see, in one private archive."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from kubectl_coterie.bundle import Contents, collect, write_archive
from kubectl_coterie.check import findings_json, run_checks
from kubectl_coterie.commands.session_of import session_of
from kubectl_coterie.errors import CliError
from kubectl_coterie.installation import gather
from kubectl_coterie.terminal import Output
from topology.cli.program import version
from topology.errors import quote
from topology.printable import printable
from topology.text_table import table

if TYPE_CHECKING:
    from argparse import Namespace

__all__ = ["run"]

MODE = 0o600
_KIB = 1024
_HOLDS = """\
It names nodes, pods, namespaces, users and hosts, and holds what Coterie's log lines say.
It holds no Secret; of users' pods no environment, command line, image, volume or label, and no
annotation but Coterie's; of the scheduler's configuration no key and no plugin's arguments.
Look through it before you send it.
"""
_DEFAULT_NAME = "coterie-support-%Y%m%d-%H%M%S.tar.gz"


def run(given: Namespace) -> int:
    """Collect it and write the archive. Raises `CliError`."""
    if given.tail < 1:
        msg = f"--tail is {given.tail}, expected a whole number of 1 or more"
        raise CliError(msg)
    now_s = time.time()
    path = Path(given.out or datetime.fromtimestamp(now_s, UTC).strftime(_DEFAULT_NAME))
    if path.exists():
        raise CliError(_is_there(path))
    contents = asyncio.run(_collect(given, now_s))
    about: dict[str, object] = {
        "collected_at": datetime.fromtimestamp(now_s, UTC).isoformat(timespec="seconds"),
        "command_version": version(),
        "tail": given.tail,
    }
    members = contents.members(about)
    _announce(contents, path)
    _write(members, path)
    size = path.stat().st_size / _KIB
    lacks = len(contents.missing)
    were = "1 thing was" if lacks == 1 else f"{lacks} things were"
    Output().print(
        f"{printable(str(path))}: {size:.1f} KiB, {len(members)} files; {were} not "
        "collected, which its manifest.json lists"
    )
    return 0


def _announce(contents: Contents, path: Path) -> None:
    """Say what is about to be written, and where."""
    sys.stderr.write(f"{printable(str(path))} will hold:\n")
    rows = [(what, *(str(n) if n else "-" for n in counts)) for what, *counts in contents.summary()]
    for line in table(rows, ("FILE", "FILES", "ENTRIES", "LINES"), right={1, 2, 3}, gap="   "):
        sys.stderr.write(f"{printable(line)}\n")
    for one in contents.missing:
        sys.stderr.write(f"not collected: {printable(one.what)}: {printable(one.why)}\n")
    sys.stderr.write(_HOLDS)


async def _collect(given: Namespace, now_s: float) -> Contents:
    async with session_of(given) as session:
        seen = await gather(session, version=version(), now_s=now_s)
        contents = await collect(session, seen, tail=given.tail)
        contents.add("check.json", {"items": findings_json(run_checks(seen, quotes=False))})
        return contents


def _write(members: dict[str, bytes], path: Path) -> None:
    """Write a file that no other user may read; one that is there is never overwritten."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE)
    except FileExistsError as error:
        raise CliError(_is_there(path)) from error
    except OSError as error:
        raise CliError(_unwritable(path, error)) from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            write_archive(members, file)
    except OSError as error:
        with suppress(OSError):
            path.unlink()
        raise CliError(_unwritable(path, error)) from error


def _is_there(path: Path) -> str:
    return f"{quote(str(path))} is there already and is not overwritten: name another OUT"


def _unwritable(path: Path, error: OSError) -> str:
    return f"{quote(str(path))} cannot be written: {error.strerror}; name another OUT"
