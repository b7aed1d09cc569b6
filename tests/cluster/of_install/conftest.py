"""Fixtures of the tests that install Coterie: programs and images, made once for all workers."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from tests.cluster.install.images import Images, built_images
from tests.cluster.install.own_network import NetworkRefused, OwnNetwork
from tests.cluster.install.stage import InstallTools
from tests.cluster.install.stage import install_tools as found_tools
from tests.cluster.programs.debian import ProgramMissing

if TYPE_CHECKING:
    from tests.cluster.node.kubelet_node import NodeTools
    from tests.cluster.programs.build import Binaries


@pytest.fixture(scope="session")
def install_tools(binaries: Binaries, node_tools: NodeTools) -> InstallTools:
    """What a stage runs.

    Where the machine cannot have it, its tests are left out with the reason, but fail in CI, where
    skips would go unnoticed.
    """
    try:
        with OwnNetwork():
            pass
        return found_tools(binaries, node_tools, _say)
    except (NetworkRefused, ProgramMissing) as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(f"no network of our own on this machine: {error}")


@pytest.fixture(scope="session")
def install_images(
    binaries: Binaries, tmp_path_factory: pytest.TempPathFactory, worker_id: str
) -> Images:
    """The images of this checkout."""
    base = tmp_path_factory.getbasetemp()
    folder = base if worker_id == "master" else base.parent  # which all workers share
    return built_images(binaries, folder / "install-images", _say)


def _say(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201 - progress of a build is for people
