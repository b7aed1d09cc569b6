"""Packed tar archives whose bytes depend on their content alone.

A tree is paths with what is there; `pack` writes it sorted, owned by root, with normal modes and
one date, so that neither the clock nor the user, the umask or the order of a folder shows. What
remains is zlib: another version of it may compress to other bytes, which `Packed.digest` then shows
and `Packed.diff_id` does not.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import tarfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, TypeAlias

from deploy.release.errors import ContentRefused

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import BinaryIO

__all__ = [
    "Entry",
    "File",
    "Folder",
    "Link",
    "Packed",
    "Tree",
    "file_digest",
    "folder_tree",
    "pack",
]

_LEVEL = 6
"""Of gzip's levels: 9 takes twice as long for 1 % less."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder; those above an entry need not be named unless they have another mode."""

    mode: int = 0o755


@dataclass(frozen=True, slots=True)
class File:
    """A regular file, from that path or with that content."""

    content: Path | bytes
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link."""

    target: str


Entry: TypeAlias = Folder | File | Link
Tree: TypeAlias = "Mapping[str, Entry]"
"""Entries by path from the root, without a leading slash: `etc/passwd`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A packed archive on disk."""

    path: Path
    size: int
    """Bytes of the file."""
    digest: str
    """`sha256:` of the file."""
    diff_id: str
    """`sha256:` of the archive in it (OCI image-spec, config.md)."""
    unpacked: int
    """Bytes of all files in it."""


def folder_tree(folder: Path, below: str = "") -> dict[str, Entry]:
    """What is in a folder, at the path `below`; files are executable by all or by none.

    Raises `ContentRefused` for what is neither a folder, a file nor a symbolic link.
    """
    tree: dict[str, Entry] = {}
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            mode = path.lstat().st_mode
            entry: Entry
            if stat.S_ISLNK(mode):
                entry = Link(str(path.readlink()))
            elif stat.S_ISDIR(mode):
                entry = Folder()
            elif stat.S_ISREG(mode):
                entry = File(path, 0o755 if mode & 0o111 else 0o644)
            else:
                msg = f"{path} has file type {stat.S_IFMT(mode):o}, expected a file or folder"
                raise ContentRefused(msg)
            tree[str(PurePosixPath(below, path.relative_to(folder).as_posix()))] = entry
    return tree


def file_digest(path: Path) -> str:
    """SHA-256 of a file, as 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def pack(tree: Tree, target: Path, *, epoch: int = 0) -> Packed:
    """Write the tree as a tar archive in gzip's format; `epoch` (Unix time) dates each entry.

    Layers have epoch 0, as those of other images without a distribution's builder have, so that a
    layer with the same content is the same in each release. Raises `ContentRefused` for a path that
    leaves the root, and for entries below a file or a link.
    """
    entries = _with_parents(tree)
    unpacked = 0
    with target.open("wb") as file:
        packed = _Hashed(file)
        with gzip.GzipFile("", "wb", _LEVEL, packed, mtime=0) as compressed:
            plain = _Hashed(compressed)
            with tarfile.open(mode="w|", fileobj=plain, format=tarfile.PAX_FORMAT) as archive:
                for path in sorted(entries):
                    unpacked += _add(archive, path, entries[path], epoch)
    return Packed(
        path=target,
        size=packed.size,
        digest=packed.digest,
        diff_id=plain.digest,
        unpacked=unpacked,
    )


def _with_parents(tree: Tree) -> dict[str, Entry]:
    entries = dict(tree)
    for path in tree:
        parts = PurePosixPath(path).parts
        if not parts or parts[0] == "/" or ".." in parts or str(PurePosixPath(path)) != path:
            msg = f"path {path!r} of an archive, expected one from the root such as 'etc/passwd'"
            raise ContentRefused(msg)
        for parent in map(str, PurePosixPath(path).parents):
            if parent != "." and not isinstance(entries.setdefault(parent, Folder()), Folder):
                msg = f"{path!r} is below {parent!r}, which is no folder"
                raise ContentRefused(msg)
    return entries


def _add(archive: tarfile.TarFile, path: str, entry: Entry, epoch: int) -> int:
    """Append one entry; returns the bytes of its content."""
    header = tarfile.TarInfo(path)
    header.mtime = epoch
    match entry:
        case Folder(mode):
            header.type, header.mode = tarfile.DIRTYPE, mode
            archive.addfile(header)
        case Link(target):
            header.type, header.mode, header.linkname = tarfile.SYMTYPE, 0o777, target
            archive.addfile(header)
        case File(content, mode):
            header.mode = mode
            if isinstance(content, bytes):
                header.size = len(content)
                archive.addfile(header, io.BytesIO(content))
            else:
                header.size = content.stat().st_size
                with content.open("rb") as file:
                    archive.addfile(header, file)
    return header.size


class _Hashed(io.RawIOBase):
    """Passes on what is written, and counts and hashes it."""

    def __init__(self, target: BinaryIO | gzip.GzipFile) -> None:
        super().__init__()
        self._target = target
        self._hash = hashlib.sha256()
        self.size = 0

    @property
    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"

    def writable(self) -> bool:
        return True

    def write(self, data: bytes | bytearray | memoryview, /) -> int:  # type: ignore[override]
        self._hash.update(data)
        self.size += len(data)
        self._target.write(data)
        return len(data)
