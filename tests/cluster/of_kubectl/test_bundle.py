"""`kubectl coterie support-bundle` on the real API server."""

from __future__ import annotations

import json
import tarfile
from typing import TYPE_CHECKING

import pytest

from tests.cluster.of_install.kubectl_coterie import KubectlCoterie

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.fleet.stage import Play

pytestmark = pytest.mark.cluster


def unpacked(path: Path) -> dict[str, str]:
    """The files of a bundle by path below its folder."""
    found: dict[str, str] = {}
    with tarfile.open(path) as archive:
        for member in archive:
            content = archive.extractfile(member)
            assert content is not None
            found[member.name.removeprefix("coterie-support/")] = content.read().decode()
    return found


def test_a_bundle_holds_the_state_of_the_cluster(looked_at, tmp_path):
    """Placed pods, Events, state and metrics of the extender; what no kubelet gives is listed."""

    def look(played: Play) -> None:
        path = tmp_path / "bundle.tar.gz"
        coterie = KubectlCoterie(played.cast.control_plane)
        done = coterie.run("support-bundle", str(path), "--extender-url", played.cast.extender.url)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"{path}: ")
        files = unpacked(path)
        placed = {one["name"] for one in json.loads(files["read-api/pods.json"])}
        assert placed == {"train-0", "train-1"}
        reasons = {one["reason"] for one in json.loads(files["events/coterie-extender.json"])}
        assert "GpusPlaced" in reasons
        assert json.loads(files["extender/state.json"])["is_ready"] is True
        (metrics,) = (text for name, text in files.items() if name.endswith("metrics.txt"))
        assert "coterie_extender_" in metrics
        manifest = json.loads(files["manifest.json"])
        lacking = {one["what"] for one in manifest["missing"]}
        assert "plugin/coterie-node_coterie-plugin-1/plugin.log" in lacking
        assert json.loads(files["check.json"])["items"]
        again = coterie.run("support-bundle", str(path))
        assert again.returncode == 1
        assert "is not overwritten" in again.stderr

    looked_at(look)


def test_who_may_read_little_gets_little(looked_at, tmp_path):
    """The manifest names each right that was missing."""

    def look(played: Play) -> None:
        path = tmp_path / "bundle.tar.gz"
        plane = played.cast.control_plane
        coterie = KubectlCoterie(plane, plane.kubeconfig("stranger"))
        coterie("support-bundle", str(path), "--extender-url", played.cast.extender.url)
        files = unpacked(path)
        missing = {one["what"]: one["why"] for one in json.loads(files["manifest.json"])["missing"]}
        assert 'User "stranger" cannot list resource "nodes"' in missing["nodes.json"]
        assert 'cannot list resource "events"' in missing["events/coterie-extender.json"]
        assert "read-api/nodes.json" in files

    looked_at(look)
