"""The archive of `kubectl coterie` with its locked wheels, started from where krew puts it."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from deploy.release.content import PYTHONS, kubectl_tree
from deploy.release.oci import machine_architecture, pack

ROOT = Path(__file__).resolve().parents[3]
HERE = "{}.{}".format(*sys.version_info[:2])
IMPORTED = "aiohttp, kube.client, networkx, numpy, pydantic, yaml, kubectl_coterie.command_line"

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(HERE not in PYTHONS, reason=f"no archive is made for Python {HERE}"),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """The archive for this machine, unpacked."""
    folder = tmp_path_factory.mktemp("kubectl")
    (folder / "work").mkdir()
    architecture = machine_architecture()
    tree = kubectl_tree(architecture, "0.3.1", ROOT, folder / "work", lambda _step: None)
    pack(tree, folder / "archive.tar.gz")
    with tarfile.open(folder / "archive.tar.gz") as archive:
        assert all(one.isfile() or one.isdir() for one in archive)  # krew takes nothing else
        archive.extractall(folder / "store", filter="data")
    return folder / "store"


@pytest.fixture
def started(tmp_path):
    """Run a command with this Python on PATH, and nothing of this environment."""
    (tmp_path / "python3").symlink_to(os.path.realpath(sys.executable))

    def run(*words):
        return subprocess.run(
            [str(word) for word in words],
            env={"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    return run


def test_the_program_runs(store, started):
    """By the launcher; its version is that of the archive."""
    done = started(store / "kubectl-coterie", "--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, "kubectl-coterie 0.3.1\n", "")
    done = started(store / "kubectl_complete-coterie", "--ver")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("--version\t")


def test_what_it_imports_is_there(store, started, tmp_path):
    """Compiled distributions find their libraries in the folder of this Python's version."""
    script = (store / "kubectl-coterie.py").read_text(encoding="utf-8")
    loading = script.partition("from kubectl_coterie")[0].replace("__file__", "sys.argv[1]")
    code = f"{loading}\nimport {IMPORTED}\nprint(numpy.__file__)"
    done = started(tmp_path / "python3", "-I", "-c", code, store / "kubectl-coterie.py")
    assert done.stderr == ""
    assert done.stdout == f"{store}/lib/{HERE}/numpy/__init__.py\n"
