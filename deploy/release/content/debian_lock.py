"""Which Debian packages the images' base has: versions, places on a mirror and hashes.

`base.lock` has one line per package and architecture, resolved by apt-get from the mirrors that the
machine itself uses, with the release of the base in place of its own. The same lock makes the same
base as long as a mirror has these versions; the hashes hold whichever mirror that is.
"""

from __future__ import annotations

import os
import platform
import re
import tempfile
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.release.commands import run
from deploy.release.errors import ContentRefused, StepFailed
from deploy.release.oci import ARCHITECTURES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = [
    "LOCK",
    "PYTHON",
    "RELEASE",
    "SOURCES",
    "DebianPackage",
    "debian_sources",
    "read_lock",
    "renew_lock",
    "write_lock",
]

LOCK = Path(__file__).parents[1] / "base.lock"
RELEASE = "trixie"
"""Debian 13, whose Python is 3.13; security updates until 2028 (wiki.debian.org/DebianReleases)."""
PYTHON = "3.13"
SOURCES = "COTERIE_DEBIAN_SOURCES"
"""Variable with the mirrors: `URI SUITE, URI SUITE, ...`; by default those of the machine."""

_WANTED = (
    "base-files",  # the folders, and what scanners read the release from
    f"python{PYTHON}-minimal",
    f"libpython{PYTHON}-stdlib",
    "libstdc++6",  # for numpy and gRPC
    "netbase",  # names of protocols and services
)
_LEFT_OUT = {
    "debconf": "debconf-2.0",
    "dpkg": "install-info",
    "mawk": "awk",
}
"""Needed only to install and configure packages, by what else they stand for."""
_HEADER = """\
# The Debian packages of the images' base, by `make lock`. Each line: architecture, package,
# version, path on a mirror, SHA-256.
"""
_KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


@dataclass(frozen=True, slots=True, order=True)
class DebianPackage:
    """One package of the base."""

    architecture: str
    """Of the image; packages for all architectures are listed for each."""
    name: str
    version: str
    path: str
    """Below a mirror's root."""
    sha256: str


def read_lock(path: Path = LOCK) -> tuple[DebianPackage, ...]:
    """The locked packages; raises `ContentRefused` for a line that is none."""
    found: list[DebianPackage] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("#"):
            continue
        match line.split():
            case [architecture, name, version, place, sha256] if re.fullmatch(
                "[0-9a-f]{64}", sha256
            ):
                found.append(DebianPackage(architecture, name, version, place, sha256))
            case _:
                msg = (
                    f"{path}:{number}: {line!r}, "
                    "expected architecture, package, version, path and SHA-256"
                )
                raise ContentRefused(msg)
    return tuple(found)


def write_lock(packages: Iterable[DebianPackage], path: Path = LOCK) -> None:
    """Write the lock, sorted."""
    lines = (" ".join(astuple(one)) + "\n" for one in sorted(packages))
    path.write_text(_HEADER + "".join(lines), encoding="utf-8")


def debian_sources() -> list[tuple[str, str]]:
    """The mirrors as pairs of URI and suite, from `COTERIE_DEBIAN_SOURCES` or apt's own settings.

    Raises `StepFailed` where neither names one.
    """
    own = os.environ.get(SOURCES)
    if own:
        pairs = [tuple(one.split()) for one in own.split(",")]
        found = [(one[0], one[1]) for one in pairs if len(one) == 2]  # noqa: PLR2004 - a pair
        if len(found) != len(pairs):
            msg = f"{SOURCES}={own!r}, expected 'URI SUITE, URI SUITE, ...'"
            raise StepFailed(msg)
        return found
    system = platform.freedesktop_os_release()
    if system["ID"] != "debian":
        msg = (
            f"this is {system['ID']}, which has no mirror of Debian: set {SOURCES}='URI SUITE, ...'"
        )
        raise StepFailed(msg)
    listed = run([
        *("apt-get", "indextargets", "--no-release-info"),
        *("--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages"),
    ])  # fmt: skip
    codename = system["VERSION_CODENAME"]
    names = {codename: RELEASE} | {
        f"{codename}-{part}": f"{RELEASE}-{part}" for part in ("updates", "security")
    }
    pairs_of_apt = dict.fromkeys(tuple(line.split()) for line in listed.splitlines())
    mirrors = [(uri, names[suite]) for uri, suite in pairs_of_apt if suite in names]
    if not mirrors:
        msg = f"apt-get has no mirror for {codename}: set {SOURCES}='URI SUITE, ...'"
        raise StepFailed(msg)
    return mirrors


def renew_lock(say: Callable[[str], None]) -> tuple[DebianPackage, ...]:
    """Resolve the newest packages for every architecture; raises `StepFailed`."""
    sources = debian_sources()
    found: list[DebianPackage] = []
    for architecture in ARCHITECTURES:
        say(f"resolving Debian packages for {architecture.name}")
        with tempfile.TemporaryDirectory() as folder:
            found += _resolved(architecture.name, sources, Path(folder))
    return tuple(sorted(found))


def _resolved(
    architecture: str, sources: Sequence[tuple[str, str]], folder: Path
) -> list[DebianPackage]:
    """Let apt resolve in a folder of its own, where nothing is installed but what is left out."""
    signed = f" signed-by={_KEYS}" if _KEYS.is_file() else ""
    lines = (f"deb [arch={architecture}{signed}] {uri} {suite} main\n" for uri, suite in sources)
    (folder / "sources.list").write_text("".join(lines), encoding="utf-8")
    (folder / "status").write_text(
        "\n".join(_installed(name, architecture) for name in _LEFT_OUT), encoding="utf-8"
    )
    for name in ("state/lists/partial", "cache/archives/partial", "parts"):
        (folder / name).mkdir(parents=True)
    options = {
        "Dir::State": folder / "state",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": folder / "parts",
        "Dir::Etc::preferences": "/dev/null",
        "Dir::Etc::preferencesparts": folder / "parts",
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
    }
    flags = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    run(["apt-get", *flags, "--quiet", "update"])
    planned = run(["apt-get", *flags, "--quiet", "--simulate", "install", *_WANTED])
    pins = re.findall(r"^Inst (\S+) \((\S+) ", planned, re.MULTILINE)
    shown = run([
        *("apt-cache", *flags, "--quiet", "show"),
        *(f"{name.partition(':')[0]}={version}" for name, version in pins),
    ])  # fmt: skip
    packages = [_package(architecture, text) for text in shown.split("\n\n") if text.strip()]
    # The same version may be on two mirrors.
    return list({one.name: one for one in packages}.values())


def _installed(name: str, architecture: str) -> str:
    return (
        f"Package: {name}\nStatus: install ok installed\nVersion: 9999\nMulti-Arch: foreign\n"
        f"Architecture: {architecture}\nProvides: {_LEFT_OUT[name]}\n"
        "Maintainer: none\nDescription: left out\n"
    )


def _package(architecture: str, text: str) -> DebianPackage:
    """Read what `apt-cache show` says of one package."""
    fields = dict(re.findall(r"^([\w-]+): (.*)$", text, re.MULTILINE))
    return DebianPackage(
        architecture, fields["Package"], fields["Version"], fields["Filename"], fields["SHA256"]
    )
