"""What a program does before anything else."""

from __future__ import annotations

from importlib import metadata

import pytest

from topology.cli.program import needs_extra, version


def test_the_version_is_the_distributions(monkeypatch):
    """One number for package, image and chart; a folder of sources has none."""
    assert version() == metadata.version("coterie")

    def absent(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    assert version() == "unknown"


def test_a_program_without_its_extra_says_what_to_install():
    """Not a traceback of some library's name."""
    with pytest.raises(SystemExit) as ended, needs_extra("coterie-plugin", "plugin"):
        raise ModuleNotFoundError(name="grpc")
    assert ended.value.code == (
        "coterie-plugin needs its dependencies (grpc is not installed): "
        "in a checkout, pip install '.[plugin]'"
    )


def test_a_fault_of_our_own_is_no_missing_extra():
    """A module that was renamed must not read as an installation without the extra."""
    with pytest.raises(ModuleNotFoundError), needs_extra("coterie-plugin", "plugin"):
        raise ModuleNotFoundError(name="plugin.gone")
    with pytest.raises(ModuleNotFoundError), needs_extra("coterie-plugin", "plugin"):
        raise ModuleNotFoundError
