"""What a checkout is: its version, its commit, and whether it may be released.

The version is that of the wheel, so that every file of a release bears one number: from the tag, or
between tags that of the next release with the number of commits.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deploy.release.commands import run
from deploy.release.errors import NotReleasable

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Identity", "changelog_entry", "identify", "refuse_changes", "refuse_untagged"]


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
            raise NotReleasable(msg)
        release, kind, number, commits = found.groups()
        parts = [f"{kind}.{number}"] if kind else []
        parts += [f"dev.{commits}"] if commits else []
        return "-".join([release, *([".".join(parts)] if parts else [])])


def identify(checkout: Path) -> Identity:
    """Read version, commit and tag; raises `StepFailed` where the folder is no checkout."""
    version = run([sys.executable, "-m", "hatchling", "version"], folder=checkout).strip()
    revision, _, seconds = _git(checkout, "log", "-1", "--format=%H %ct").partition(" ")
    tags = _git(checkout, "tag", "--points-at", "HEAD", "--list", "v*").split()
    return Identity(version, revision, int(seconds), tags[0] if tags else None, checkout)


def refuse_changes(identity: Identity) -> None:
    """Raise `NotReleasable` where files differ from the commit: no commit would make them again."""
    changed = _git(identity.checkout, "status", "--porcelain").splitlines()
    if changed:
        shown = ", ".join(line[3:] for line in changed[:5])
        msg = f"{len(changed)} files are not as committed ({shown}), expected none: commit or stash"
        raise NotReleasable(msg)


def refuse_untagged(identity: Identity) -> None:
    """Raise `NotReleasable` where the commit has no tag, or one that is not its version."""
    if identity.tag is None:
        msg = (
            f"commit {identity.revision[:9]} has no tag, expected one such as v0.3.0 "
            f"(--untagged makes the files of development version {identity.version})"
        )
        raise NotReleasable(msg)
    if identity.tag != f"v{identity.version}":
        msg = f"tag {identity.tag!r} makes version {identity.version!r}, expected the same number"
        raise NotReleasable(msg)


def changelog_entry(text: str, version: str | None) -> str:
    """The part of CHANGELOG.md for a version, or what is unreleased for None.

    Raises `NotReleasable` where it is missing or empty.
    """
    heading = "[Unreleased]" if version is None else f"[{version}]"
    found = re.search(
        rf"^## {re.escape(heading)}(?P<date> - \d{{4}}-\d\d-\d\d)?\n(?P<entry>.*?)(?=^## |\Z)",
        text,
        re.MULTILINE | re.DOTALL,
    )
    if found is None or not re.search(r"^- ", found["entry"], re.MULTILINE):
        msg = f"CHANGELOG.md has no entry '## {heading}' with what changed, expected one"
        raise NotReleasable(msg)
    if version is not None and not found["date"]:
        msg = (
            f"CHANGELOG.md's heading '## {heading}' has no date, expected ' - YYYY-MM-DD' after it"
        )
        raise NotReleasable(msg)
    return found["entry"].strip() + "\n"


def _git(checkout: Path, *arguments: str) -> str:
    return run(["git", *arguments], folder=checkout).strip()
