"""What krew installs: an archive for each architecture that every supported Python runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from deploy.release import ContentRefused, Identity
from deploy.release.content import PYTHONS, launcher_tree, merged
from deploy.release.manifests import krew_manifest
from deploy.release.oci import ARCHITECTURES, File, pack

ROOT = Path(__file__).resolve().parents[3]
MANIFEST = ROOT / "deploy" / "krew" / "coterie.yaml"
IDENTITY = Identity("0.3.1.dev5+g7ef49e1", "7" * 40, 1_700_000_000, None, ROOT)
HERE = "{}.{}".format(*sys.version_info[:2])


def unpacked(tree, folder):
    """Pack it as a release does, and unpack it."""
    pack(tree, folder / "archive.tar.gz")
    with tarfile.open(folder / "archive.tar.gz") as archive:
        assert all(one.isfile() or one.isdir() for one in archive)  # krew takes nothing else
        archive.extractall(folder / "store", filter="data")
    return folder / "store"


def started(program, path, *words):
    """Start it from a link, as krew makes one, with these folders on PATH."""
    return subprocess.run(
        [program, *words],
        env={"PATH": os.pathsep.join(map(str, path)), "PYTHONPATH": "/nowhere"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.fixture
def path(tmp_path):
    """A folder with this Python by its own name, an old `python3`, and what the script calls."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python3").write_text("#!/bin/sh\necho 3.6\n")
    (folder / "python3").chmod(0o755)
    (folder / f"python{HERE}").symlink_to(os.path.realpath(sys.executable))
    for name in ("dirname", "readlink"):
        (folder / name).symlink_to(f"/usr/bin/{name}")
    return folder


PROGRAM = {
    "lib/common/kubectl_coterie/__init__.py": File(b""),
    "lib/common/kubectl_coterie/__main__.py": File(
        b"import sys, compiled\n"
        b"def main(): print('main', compiled.VERSION, *sys.argv[1:])\n"
        b"def complete(): print('complete', compiled.VERSION, *sys.argv[1:])\n"
    ),
    **{f"lib/{one}/compiled.py": File(f"VERSION = '{one}'\n".encode()) for one in PYTHONS},
}


@pytest.mark.skipif(HERE not in PYTHONS, reason=f"no archive is made for Python {HERE}")
@pytest.mark.parametrize(
    ("program", "said"), [("kubectl-coterie", "main"), ("kubectl_complete-coterie", "complete")]
)
def test_a_python_that_fits_is_found(tmp_path, path, program, said):
    """By its own name, where `python3` is too old; from a link, with the words given."""
    store = unpacked({**launcher_tree(), **PROGRAM}, tmp_path)
    link = tmp_path / program
    link.symlink_to(store / program)
    done = started(link, [path], "explain", "a b")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{said} {HERE} explain a b\n", "")


def test_without_a_python_that_fits_it_says_which(tmp_path, path):
    """One sentence, not a shell's."""
    store = unpacked(launcher_tree(), tmp_path)
    done = started(store / "kubectl-coterie", [path])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "error: kubectl-coterie found no Python of 3.11, 3.12, 3.13 or 3.14 on PATH: install one\n"
    )


def test_what_is_the_same_for_all_versions_is_there_once():
    """Whole packages; a compiled one's libraries stay beside it."""
    pure, libraries = {"pure/a.py": File(b"a")}, {"x.libs/l.so": File(b"l")}
    trees = {
        one: {**pure, **libraries, "x/c.so": File(one.encode()), "x/d.py": File(b"d")}
        for one in PYTHONS
    }
    trees["3.11"]["only.py"] = File(b"o")
    found = merged(trees)
    own = {f"lib/{one}/{name}" for one in PYTHONS for name in ("x/c.so", "x/d.py", "x.libs/l.so")}
    assert set(found) == {"lib/common/pure/a.py", "lib/3.11/only.py", *own}


def test_the_manifest_is_krews():
    """The fields that krew's own validation requires of a plugin (pkg/index/validation)."""
    manifest = yaml.safe_load(MANIFEST.read_text(encoding="utf-8"))
    assert manifest["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert manifest["kind"] == "Plugin"
    assert manifest["metadata"] == {"name": MANIFEST.stem}
    spec = manifest["spec"]
    assert {"version", "homepage", "shortDescription", "description", "caveats"} < spec.keys()
    assert "\n" not in spec["shortDescription"]
    assert len(spec["shortDescription"]) <= 50
    assert ", ".join(PYTHONS[:-1]) in spec["caveats"]
    selectors = [one["selector"]["matchLabels"] for one in spec["platforms"]]
    assert selectors == [{"os": "linux", "arch": one.name} for one in ARCHITECTURES]
    for platform in spec["platforms"]:
        assert set(platform) == {"selector", "uri", "sha256", "files", "bin"}
        assert platform["bin"] in launcher_tree()
        assert re.fullmatch(r"https://set-your-[a-z-]+\.invalid/\S+\.tar\.gz", platform["uri"])


def test_a_release_fills_the_manifest():
    """Version, names and digests of the archives that it made."""
    text = krew_manifest(MANIFEST, IDENTITY, {"amd64": "a" * 64, "arm64": "b" * 64})
    spec = yaml.safe_load(text)["spec"]
    assert spec["version"] == "v0.3.1-dev.5"
    assert [one["sha256"] for one in spec["platforms"]] == ["a" * 64, "b" * 64]
    name = "kubectl-coterie_v0.3.1-dev.5_linux_arm64.tar.gz"
    assert spec["platforms"][1]["uri"].endswith(f"/{name}")
    (only,) = yaml.safe_load(krew_manifest(MANIFEST, IDENTITY, {"arm64": "b" * 64}))["spec"][
        "platforms"
    ]
    assert only["selector"]["matchLabels"]["arch"] == "arm64"


def test_an_architecture_that_the_manifest_lacks_is_refused():
    """It would be built and installed by nobody."""
    with pytest.raises(ContentRefused, match="has 0 platforms for riscv64, expected one"):
        krew_manifest(MANIFEST, IDENTITY, {"riscv64": "c" * 64})
