"""An image's archive as a folder, and commands in it with the rights that a pod has."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CONTAINED = Path(__file__).with_name("contained.py")
SITE = "opt/coterie/lib/python3.13/site-packages"
IMPORT_EVERYTHING = """
import importlib, pathlib, sys, traceback
failed = 0
for package in sys.argv[2:]:
    for path in sorted(pathlib.Path(sys.argv[1], package).rglob("*.py")):
        parts = path.relative_to(sys.argv[1]).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        try:
            importlib.import_module(name)
        except BaseException:
            failed += 1
            print(name, traceback.format_exc(limit=-1))
if failed:
    sys.exit(failed)
"""


@dataclass(frozen=True)
class Unpacked:
    """An image for one architecture, built and unpacked."""

    name: str
    version: str
    root: Path
    config: dict[str, Any]
    compressed: int
    unpacked: int
    emulator: tuple[str, ...] = ()
    """Program in the root that runs another machine's; then commands are no scripts."""

    def command(self, *command, folder=None):
        """What runs a command in it, as the user that its pods have."""
        user = (self.config.get("User") or "0").partition(":")[0]
        inside = [sys.executable, "-I", "-S", str(CONTAINED), str(self.root), user]
        within = ["unshare", "--mount", *inside, str(folder or "")]
        return [*within, *self.emulator, *map(str, command)]

    def run(self, *command, timeout_s=60.0):
        """Run a command to its end."""
        return subprocess.run(
            self.command(*command), capture_output=True, text=True, timeout=timeout_s, check=False
        )

    def files(self):
        """All paths below its root."""
        return {str(path.relative_to(self.root)): path for path in self.root.rglob("*")}


def unpack(archive, root):
    """Unpack the first architecture of an OCI archive; returns its config."""
    with tarfile.open(archive) as outer:

        def member(path):
            found = outer.extractfile(path)
            assert found is not None
            return found

        def blob(digest):
            return member(f"blobs/sha256/{digest.removeprefix('sha256:')}")

        (index,) = json.load(member("index.json"))["manifests"]
        (described,) = json.load(blob(index["digest"]))["manifests"]
        manifest = json.load(blob(described["digest"]))
        for layer in manifest["layers"]:
            with tarfile.open(fileobj=blob(layer["digest"]), mode="r:gz") as inner:
                inner.extractall(root, filter="fully_trusted")  # noqa: S202 - ours
        return json.load(blob(manifest["config"]["digest"]))["config"]
