"""What a checkout is: its version, its commit, and whether it may be released.

The version is that of the wheel, so that every file of a release bears one number: from the tag, or
between tags that of the next release with the number of commits.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deploy.release.commands import ReleaseError, run

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Identity", "changelog_entry", "identify"]


@dataclass(frozen=True, slots=True)
class Identity:
    """A checkout, and what every file of an image or a release is stamped with."""

    version: str
    """As Python has it (PEP 440): `0.3.0`, `0.3.1.dev5+g7ef49e1`."""
    revision: str
    """The commit's hash."""
    epoch: int
    """Unix time of the commit: SOURCE_DATE_EPOCH."""
    tag: str | None
    """The commit's tag (`v0.3.0`), if it has one."""
    checkout: Path

    @property
    def image_tag(self) -> str:
        """The version as a tag of images, which may hold no `+`."""
        return self.version.replace("+", "-")

    @property
    def chart_version(self) -> str:
        """The version as Helm wants it (SemVer): `0.3.0`, `0.3.1-dev.5`, `0.3.0-rc.1`."""
        found = re.fullmatch(
            r"(\d+\.\d+\.\d+)(?:(a|b|rc)(\d+))?(?:\.dev(\d+))?(?:\+.*)?", self.version
        )
        if found is None:
            msg = f"version {self.version!r}, expected three numbers as in 0.3.0 or 0.3.1.dev5"
            raise ReleaseError(msg)
        release, kind, number, commits = found.groups()
        parts = [f"{kind}.{number}"] * bool(kind) + [f"dev.{commits}"] * bool(commits)
        return "-".join([release, *[".".join(parts)] * bool(parts)])


def identify(checkout: Path) -> Identity:
    """Read version, commit and tag; raises `ReleaseError` where the folder is no checkout."""
    version = run([sys.executable, "-m", "hatchling", "version"], checkout).strip()
    revision, seconds = run(["git", "log", "-1", "--format=%H %ct"], checkout).split()
    tags = run(["git", "tag", "--points-at", "HEAD", "--list", "v*"], checkout).split()
    return Identity(version, revision, int(seconds), tags[0] if tags else None, checkout)


def changelog_entry(identity: Identity, *, is_untagged: bool = False) -> str:
    """What CHANGELOG.md says of the version; raises `ReleaseError` where this is no release.

    `is_untagged` takes a commit without a tag, with what is unreleased.
    """
    if changed := run(["git", "status", "--porcelain"], identity.checkout):
        msg = f"files are not as committed, expected none; commit or stash them:\n{changed}"
        raise ReleaseError(msg)
    if not is_untagged and identity.tag != f"v{identity.version}":
        msg = (
            f"the commit has tag {identity.tag}, expected v{identity.version} "
            "(--untagged makes the files of a development version)"
        )
        raise ReleaseError(msg)
    heading = re.escape("[Unreleased]" if is_untagged else f"[{identity.version}]")
    date = "" if is_untagged else r" - \d{4}-\d\d-\d\d"
    text = (identity.checkout / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {heading}{date}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None or not re.search(r"^- ", found[1], re.MULTILINE):
        msg = f"CHANGELOG.md has no entry {heading}{date} with what changed, expected one"
        raise ReleaseError(msg)
    return found[1].strip() + "\n"
