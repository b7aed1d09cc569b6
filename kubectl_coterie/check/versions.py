"""Whether the versions fit together: this command, extender, node plugins and Kubernetes.

The supported versions and the allowed skew are those of docs/compatibility.md.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kubectl_coterie.check.findings import Finding, Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kubectl_coterie.installation.programs import ProgramPod
    from kubectl_coterie.installation.seen import Seen

__all__ = ["OLDEST_KUBERNETES", "TESTED_KUBERNETES", "check_kubernetes", "check_versions"]

CHECK, KUBERNETES = "versions", "kubernetes"
TESTED_KUBERNETES = ((1, 35), (1, 36), (1, 37))
OLDEST_KUBERNETES = (1, 34)
"""Should work, but is not tested."""

_MINOR = re.compile(r"v?(\d+)\.(\d+)")
_TABLE = "docs/compatibility.md has the versions"


def check_versions(seen: Seen) -> Iterator[Finding]:
    """Of Coterie's own programs: command against extender, extender against node plugins."""
    extender = _extender_version(seen)
    if seen.is_audit:
        yield Finding(CHECK, Status.OK, f"this command is {seen.version}")
    elif extender is None:
        about = seen.cluster.missing or "no extender was found, so its version is not known"
        yield Finding(CHECK, Status.NOT_KNOWN, about)
    else:
        yield _command(seen.version, extender)
    if seen.is_audit:
        yield from _plugins(seen.plugins, f"this command {seen.version}", seen.version)
    else:
        yield from _plugins(seen.plugins, f"extender {extender or 'not known'}", extender)


def check_kubernetes(seen: Seen) -> Iterator[Finding]:
    """Of the API server."""
    text = seen.kubernetes.value
    minor = None if text is None else _minor(text)
    if minor is None:
        about = seen.kubernetes.missing or f"the API server says its version is {text!r}"
        yield Finding(KUBERNETES, Status.NOT_KNOWN, about)
        return
    about = f"Kubernetes {text}"
    if minor in TESTED_KUBERNETES:
        yield Finding(KUBERNETES, Status.OK, about)
    elif minor < OLDEST_KUBERNETES:
        oldest = ".".join(map(str, OLDEST_KUBERNETES))
        yield Finding(
            KUBERNETES, Status.FAILED, f"{about} is not supported", f"use {oldest} or later"
        )
    else:
        yield Finding(KUBERNETES, Status.WARNING, f"{about} is not among those tested", _TABLE)


def _extender_version(seen: Seen) -> str | None:
    if seen.cluster.value is not None:
        return str(seen.cluster.value["version"])
    tags = [_tag(program.image) for program in seen.extenders]
    return next((tag for tag in tags if tag), None)


def _command(command: str, extender: str) -> Finding:
    ours, theirs = _minor(command), _minor(extender)
    about = f"this command is {command}, the extender {extender}"
    if ours is None or theirs is None:
        return Finding(CHECK, Status.NOT_KNOWN, about, "install both from releases to compare them")
    if ours == theirs:
        return Finding(CHECK, Status.OK, about)
    return Finding(
        CHECK,
        Status.WARNING,
        about,
        "install the command of the extender's version: fields differ",
    )


def _plugins(plugins: Sequence[ProgramPod], other: str, version: str | None) -> Iterator[Finding]:
    """Against another program, which `other` names with its version."""
    tags = sorted({_tag(program.image) or "" for program in plugins})
    if not tags:
        return
    shown = ", ".join(tag or "without a tag" for tag in tags)
    about = f"node plugins by image: {shown}"
    wanted = None if version is None else _minor(version)
    minors = [_minor(tag) for tag in tags]
    known = [minor for minor in minors if minor is not None]
    if wanted is None or len(known) < len(tags):
        todo = "an image's tag is no version: `coterie-plugin --version` in the pod says it"
        yield Finding(CHECK, Status.NOT_KNOWN, f"{about}; {other}", todo)
    elif any(_is_far(minor, wanted) for minor in known):
        todo = "they must be of neighbouring minor versions: upgrade the older ones"
        yield Finding(CHECK, Status.FAILED, f"{about}; {other}", todo)
    elif set(known) != {wanted}:
        todo = "they work together; finish the upgrade"
        yield Finding(CHECK, Status.WARNING, f"{about}; {other}", todo)
    else:
        yield Finding(CHECK, Status.OK, about)


def _is_far(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] != other[0] or abs(one[1] - other[1]) > 1


def _minor(version: str) -> tuple[int, int] | None:
    found = _MINOR.match(version)
    return None if found is None else (int(found[1]), int(found[2]))


def _tag(image: str) -> str | None:
    """An image's tag; None where it has none, as by digest."""
    name = image.partition("@")[0].rpartition("/")[2]
    _, colon, tag = name.partition(":")
    return tag if colon else None
