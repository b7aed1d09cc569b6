"""What the images are made of: locks, and the project's own modules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from deploy.release.content import (
    LOCK,
    OWN_UNUSED,
    PROGRAMS,
    DebianPackage,
    is_unused,
    locked_pins,
    program_lock,
    read_lock,
    write_lock,
)
from deploy.release.errors import ContentRefused
from deploy.release.oci import ARCHITECTURES
from tests.unit.test_distribution import declared, imported, imported_modules

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = DebianPackage("amd64", "libc6", "2.41-12", "pool/main/g/glibc/libc6.deb", "0" * 64)


def test_each_architecture_has_the_same_packages():
    """A library that one lacks would be missed on its nodes only."""
    names = {
        one.name: {(p.name, p.version) for p in read_lock() if p.architecture == one.name}
        for one in ARCHITECTURES
    }
    assert names["amd64"] == names["arm64"]
    assert len(names["amd64"]) > 10


def test_the_base_has_no_shell_and_no_package_manager():
    """They would come in for scripts that never run here."""
    names = {one.name for one in read_lock()}
    assert (
        names & {"dash", "bash", "dpkg", "apt", "debconf", "mawk", "perl-base", "busybox"} == set()
    )
    assert {"python3.13-minimal", "libpython3.13-stdlib", "libstdc++6", "base-files"} <= names


def test_the_lock_names_no_mirror():
    """Where packages come from is the machine's to say."""
    assert "://" not in LOCK.read_text(encoding="utf-8")


def test_a_lock_is_read_as_it_was_written(tmp_path):
    """Sorted, so that renewing it shows what changed."""
    packages = [replace(PACKAGE, name="zlib1g"), PACKAGE, replace(PACKAGE, architecture="arm64")]
    write_lock(packages, tmp_path / "lock")
    assert list(read_lock(tmp_path / "lock")) == sorted(packages)


@pytest.mark.parametrize(
    "line", ["amd64 libc6 2.41", f"amd64 libc6 2.41 pool/x {'0' * 63}", f"{'x ' * 4}{'g' * 64}"]
)
def test_a_line_that_is_no_package_is_refused(tmp_path, line):
    """A package without a hash could be anything."""
    lock = tmp_path / "lock"
    lock.write_text(f"# a comment\n{line}\n", encoding="utf-8")
    with pytest.raises(ContentRefused, match=r"lock:2: .* expected architecture, package"):
        read_lock(lock)


@pytest.mark.parametrize("program", PROGRAMS)
def test_pins_are_read_with_their_hashes(program):
    """The bill of materials repeats them."""
    pins = locked_pins(program_lock(program))
    assert {"numpy", "kubernetes", "structlog"} <= pins.keys()
    assert all(version and hashes for version, hashes in pins.values())


def shipped(program):
    """The modules of an image, by name."""
    paths = (
        path.relative_to(ROOT)
        for package in PROGRAMS[program].packages
        for path in (ROOT / package).rglob("*.py")
    )
    return {
        ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        for path in paths
        if not is_unused(path.as_posix(), OWN_UNUSED)
    }


@pytest.mark.parametrize("program", PROGRAMS)
def test_all_that_a_shipped_module_imports_is_shipped(program):
    """Inside functions too: what pruning left out would be found by the first who calls them."""
    modules = shipped(program)
    lacking = {
        (module, name)
        for module in modules
        for name in imported_modules(module)
        if (ROOT / name.partition(".")[0]).is_dir() and name not in modules
    }
    assert lacking == set()


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_locks_hold_what_shipped_modules_import(program):
    """Derived from all imports, those inside functions among them."""
    needed = imported(*shipped(program))
    assert needed <= declared(list(locked_pins(program_lock(program))))


def test_an_image_carries_nothing_of_the_other_program():
    """A right or a fault of one is none of the other."""
    assert {one for one in shipped("extender") if one.startswith("plugin")} == set()
    assert {one for one in shipped("plugin") if one.startswith("extender")} == set()
