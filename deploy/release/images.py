"""The images of both programs, from deploy/Containerfile by buildah or podman.

Writes one OCI archive for each, with all its architectures, or pushes it. The base is an argument:
an image by its digest, or `debian`, which mmdebstrap makes from Debian's mirror where no registry
can be reached, without a shell.
"""

from __future__ import annotations

import contextlib
import platform
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from deploy.release.commands import ReleaseError, run
from requirements.install import pip_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from deploy.release.checkout import Identity

__all__ = [
    "ARCHITECTURES",
    "DEBIAN",
    "PROGRAMS",
    "BuiltImage",
    "ImageOrder",
    "build_images",
    "machine_architecture",
]

PROGRAMS = ("extender", "plugin")
"""What can be built: targets of the Containerfile."""
ARCHITECTURES = ("amd64", "arm64")
DEBIAN = "debian"
_SUITE = "trixie"
"""Debian 13, whose Python is 3.13; security updates until 2028 (wiki.debian.org/DebianReleases)."""
_PACKAGES = "base-files,libstdc++6,netbase,python3-minimal,python3.13-venv"
_DEBIAN_IMAGE = f"localhost/coterie-base:{_SUITE}"
_DEBIAN_CONTAINERFILE = "FROM scratch\nARG TARGETARCH\nADD ${TARGETARCH}.tar /\n"
# Nothing is configured, so what ca-certificates would write is written here, for pip in the build.
_HOOK = """
set -- "$1/usr/share" "$1/etc/ssl/certs"
rm -rf "$1/info" "$1/lintian" "$1/locale" "$1/man" "$1"/../lib/*/gconv
find "$1/doc" -type f ! -name copyright -delete
mkdir -p "$2" && cat "$1"/ca-certificates/mozilla/*.crt > "$2/ca-certificates.crt"
"""
_INDEX = ("index-url", "extra-index-url", "cert")
_ENGINES = ("buildah", "podman")
# What works inside a container too. Kept layers are found by what made them, which is the same for
# several architectures; and the label is the engine's version.
_FLAGS = ("--isolation=chroot", "--layers=false", "--identity-label=false")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageOrder:
    """Which images to build, and how."""

    names: tuple[str, ...] = PROGRAMS
    architectures: tuple[str, ...] = ARCHITECTURES
    registry: str = ""
    """Put before each name, with a slash; empty for none."""
    tag: str = ""
    """Empty for the checkout's version."""
    base: str = ""
    """The image under both, `debian`, or empty for the Containerfile's own."""
    engine: tuple[str, ...] = ()
    """The engine with its own options; empty for what is on PATH."""
    pushes: bool = False
    """Push to the registry instead of writing archives."""


class BuiltImage(NamedTuple):
    """An image that was built."""

    name: str
    archive: Path
    """Where it is, unless it was pushed."""
    digest: str
    """That of its index, as a registry has it."""


def machine_architecture() -> str:
    """That of this machine, as images name it."""
    machine = platform.machine()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def build_images(
    order: ImageOrder, identity: Identity, target: Path, say: Callable[[str], None]
) -> list[BuiltImage]:
    """Build the images of a checkout into the folder `target`. Raises `ReleaseError`."""
    engine = order.engine or tuple(name for name in _ENGINES if shutil.which(name))[:1]
    if not engine:
        msg = f"none of {', '.join(_ENGINES)} is on PATH, expected one: apt-get install buildah"
        raise ReleaseError(msg)
    target.mkdir(parents=True, exist_ok=True)
    build = _Build(order, identity, engine, target, say)
    base = build.debian() if order.base == DEBIAN else order.base
    return [build.program(name, base) for name in order.names]


@dataclass(frozen=True, slots=True)
class _Build:
    order: ImageOrder
    identity: Identity
    engine: tuple[str, ...]
    target: Path
    say: Callable[[str], None]

    def program(self, program: str, base: str) -> BuiltImage:
        identity, checkout = self.identity, self.identity.checkout
        tag = self.order.tag or identity.image_tag
        name = f"{self.order.registry.rstrip('/')}/coterie/{program}:{tag}"
        name = name.removeprefix("/")
        arguments = {
            "VERSION": identity.version,
            "REVISION": identity.revision,
            # Not every buildah knows its own; stages that run something are for that one.
            "BUILDPLATFORM": f"linux/{machine_architecture()}",
        } | ({"BASE": base} if base else {})
        self.say(f"building {name}")
        options = [f"--build-arg={key}={value}" for key, value in arguments.items()]
        options += [f"--target={program}", *_index_options(pip_settings())]
        self.build(name, checkout / "deploy" / "Containerfile", checkout, *options)
        archive = self.target / f"coterie-{program}-{tag}.oci.tar"
        self.say(f"pushing {name}" if self.order.pushes else f"writing {archive}")
        archive.unlink(missing_ok=True)
        place = f"docker://{name}" if self.order.pushes else f"oci-archive:{archive}:{name}"
        with tempfile.TemporaryDirectory() as work:
            digest = Path(work, "digest")
            push = ("manifest", "push", "--all", f"--digestfile={digest}", name, place)
            run([*self.engine, *push], checkout)
            return BuiltImage(name, archive, digest.read_text(encoding="utf-8").strip())

    def debian(self) -> str:
        """Make the base for each architecture, of which nothing runs; its name."""
        self.say(f"making a base of Debian {_SUITE}")
        command = ["mmdebstrap", "--quiet", "--variant=extract", f"--include={_PACKAGES}"]
        with tempfile.TemporaryDirectory() as work:
            folder = Path(work)
            for architecture in self.order.architectures:
                own = (f"--architectures={architecture}", f"--extract-hook={_HOOK}")
                environment = {"SOURCE_DATE_EPOCH": str(self.identity.epoch)}
                run([*command, *own, _SUITE, f"{architecture}.tar"], folder, environment)
            (folder / "Containerfile").write_text(_DEBIAN_CONTAINERFILE, encoding="utf-8")
            self.build(_DEBIAN_IMAGE, folder / "Containerfile", folder)
        return _DEBIAN_IMAGE

    def build(self, name: str, containerfile: Path, context: Path, *options: str) -> None:
        """Build the image for all architectures, under one name."""
        # A list that is there would be added to, and an image of that name would be refused.
        for remove in (("rmi", "--force"), ("manifest", "rm")):  # the second where it is in use
            with contextlib.suppress(ReleaseError):
                run([*self.engine, *remove, name], context)
        platforms = ",".join(f"linux/{one}" for one in self.order.architectures)
        run([
            *(*self.engine, "build", *_FLAGS, f"--timestamp={self.identity.epoch}", *options),
            *(f"--platform={platforms}", f"--manifest={name}", f"--file={containerfile}", "."),
        ], context)  # fmt: skip


def _index_options(settings: Mapping[str, str]) -> list[str]:
    """Options of the engine by which pip in the build uses the index that pip here is set to."""
    names = {option: f"PIP_{option.upper().replace('-', '_')}" for option in _INDEX}
    found = [f"--build-arg={names[one]}={settings[one]}" for one in _INDEX if settings.get(one)]
    certificates = settings.get("cert")
    return [*found, *([f"--volume={certificates}:{certificates}:ro"] if certificates else [])]
