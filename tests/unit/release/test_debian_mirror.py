"""Debian packages from a mirror: what two threads download at once, and what has another hash."""

from __future__ import annotations

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deploy.release.content.debian_lock import DebianPackage
from deploy.release.content.debian_mirror import fetch
from deploy.release.errors import StepFailed

pytestmark = pytest.mark.skipif(
    not Path("/usr/lib/apt/apt-helper").is_file(), reason="apt downloads, so Debian or Ubuntu"
)
CONTENT = bytes(30 << 20)
"""So large that threads which begin together are still busy with it together."""


def package(architecture, sha256=None):
    """A package for all architectures, as the lock lists it for one."""
    known = sha256 or hashlib.sha256(CONTENT).hexdigest()
    return DebianPackage(architecture, "netbase", "6.5", "pool/netbase.deb", known)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and a folder as mirror."""
    mirror = tmp_path / "mirror"
    (mirror / "pool").mkdir(parents=True)
    (mirror / "pool" / "netbase.deb").write_bytes(CONTENT)
    monkeypatch.setenv("COTERIE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COTERIE_DEBIAN_SOURCES", f"copy://{mirror} trixie")
    return tmp_path / "cache"


def test_a_package_of_two_architectures_is_downloaded_at_once(cache):
    """Both images' layers are made at the same time, from files that they share."""
    n_threads = 8
    together = threading.Barrier(n_threads)

    def fetched(number):
        def wait(_text):
            together.wait(timeout=60)

        return fetch([package(f"a{number}")], wait)

    with ThreadPoolExecutor(n_threads) as threads:
        found = list(threads.map(fetched, range(n_threads)))
    (path,) = {path for one in found for path in one.values()}
    assert path.read_bytes() == CONTENT
    assert list((cache / "debian").iterdir()) == [path]


def test_a_package_with_another_hash_is_refused(cache):
    """A mirror may have another file under that name; nothing of it stays."""
    with pytest.raises(StepFailed, match=r"no mirror has netbase 6.5 \(amd64\)"):
        fetch([package("amd64", "0" * 64)], lambda _: None)
    assert list((cache / "debian").iterdir()) == []
