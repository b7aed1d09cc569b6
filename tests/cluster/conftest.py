"""Fixtures of the tests on the real control plane.

`COTERIE_KUBERNETES=1.35` runs them on another version of Kubernetes, `COTERIE_HELM=3` those of the
chart with another Helm; see `versions`.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from tests.cluster.control.chart import Helm
from tests.cluster.control.control_plane import ControlPlane
from tests.cluster.node.kubelet_node import KubeletNode, NodeTools
from tests.cluster.node.node_space import SpaceRefused, check_machine
from tests.cluster.node.real_pods import RealPods
from tests.cluster.programs.build import binaries as built
from tests.cluster.programs.build import helm as built_helm
from tests.cluster.programs.build import node_programs
from tests.cluster.programs.debian import ProgramMissing, find_runc
from tests.cluster.programs.versions import chosen_helm, chosen_minor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.programs.build import Binaries


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files; each stays in one worker (`--dist loadfile`)."""
    items.sort(key=_is_short)


def _is_short(item: pytest.Item) -> tuple[bool, bool]:
    """Rank of a test: Jobs, benchmarks and installations, then real kubelets, then the rest."""
    is_long = item.path.stem.startswith(("test_loop_", "test_bench_")) or bool(
        item.get_closest_marker("install")
    )
    return not is_long, item.get_closest_marker("kubelet") is None


@pytest.fixture(scope="session")
def binaries() -> Binaries:
    """The programs of the chosen Kubernetes version, built when absent."""
    return built(chosen_minor())


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm of the chosen major version, built when absent, without a cluster."""
    return Helm(built_helm(chosen_helm()), tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def shared_plane(
    binaries: Binaries, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """A control plane for all files of this worker that leave it as they found it."""
    with ControlPlane(binaries, tmp_path_factory.mktemp("shared-plane")) as running:
        yield running


@pytest.fixture(scope="module")
def control_plane(
    request: pytest.FixtureRequest, binaries: Binaries, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """A control plane without a scheduler, with no pod, node or Event on it.

    A file with the mark `own_plane` has one of its own: it kills it, or installs what others must
    not meet.
    """
    if request.node.get_closest_marker("own_plane"):
        with ControlPlane(binaries, tmp_path_factory.mktemp("control-plane")) as running:
            yield running
        return
    shared: ControlPlane = request.getfixturevalue("shared_plane")
    yield shared
    for path in ("namespaces/default/pods", "namespaces/default/events", "nodes"):
        query = {"gracePeriodSeconds": "0"}
        shared.client.delete(f"/api/v1/{path}", params=query).raise_for_status()


@pytest.fixture(scope="session")
def node_tools() -> NodeTools:
    """What real kubelets need beside themselves.

    Where the machine cannot have them, their tests are left out. Where it merely lacks runc, and
    none can be fetched, they are left out too, but fail in CI, where skips would go unnoticed.
    """
    try:
        check_machine()
    except SpaceRefused as error:
        pytest.skip(f"no real kubelet on this machine: {error}")
    try:
        runc = find_runc(lambda text: print(text, file=sys.stderr))  # noqa: T201 - for people
    except ProgramMissing as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))
    return NodeTools(node_programs(), runc)


@pytest.fixture(scope="module")
def node(control_plane: ControlPlane, node_tools: NodeTools) -> Iterator[KubeletNode]:
    """A real kubelet's node, named `machine`, with two NUMA nodes."""
    with KubeletNode(control_plane, "machine", node_tools, numa_nodes=2) as running:
        yield running


@pytest.fixture
def pods(control_plane: ControlPlane) -> Iterator[RealPods]:
    """Pods, which are gone after the test."""
    made = RealPods(control_plane)
    yield made
    made.clear()
