"""The chart and the manifests of a release."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
import yaml

from deploy.release import ContentRefused, Identity
from deploy.release.manifests import pack_chart, pack_manifests

ROOT = Path(__file__).resolve().parents[3]
IDENTITY = Identity("0.3.1.dev5+g7ef49e1", "7" * 40, 1_700_000_000, None, ROOT)
CHART = "apiVersion: v2\nname: some-chart\nversion: 0.0.0\nappVersion: 0.0.0\n"


@pytest.fixture
def chart(tmp_path):
    """A folder with a chart."""
    folder = tmp_path / "folder"
    (folder / "templates").mkdir(parents=True)
    (folder / "tests").mkdir()
    (folder / "Chart.yaml").write_text(CHART, encoding="utf-8")
    (folder / "templates" / "pod.yaml").write_text("kind: Pod\n", encoding="utf-8")
    (folder / "tests" / "x.yaml").write_text("x: 1\n", encoding="utf-8")
    (folder / ".helmignore").write_text("# not for users\ntests/\n*.orig\n", encoding="utf-8")
    return folder


def content(path):
    """Text by path in an archive."""
    with tarfile.open(path) as archive:
        members = ((one.name, archive.extractfile(one)) for one in archive)
        return {name: member.read().decode() for name, member in members if member}


def test_a_chart_is_packed_under_its_name_with_the_version(chart, tmp_path):
    """Helm takes the version from the archive's Chart.yaml."""
    pack_chart(chart, IDENTITY, tmp_path / "chart.tgz")
    files = content(tmp_path / "chart.tgz")
    assert set(files) == {
        f"some-chart/{name}" for name in (".helmignore", "Chart.yaml", "templates/pod.yaml")
    }
    packed = yaml.safe_load(files["some-chart/Chart.yaml"])
    assert packed == {
        "apiVersion": "v2",
        "name": "some-chart",
        "version": "0.3.1-dev.5",
        "appVersion": "0.3.1.dev5-g7ef49e1",
    }


def test_a_chart_is_packed_the_same_twice(chart, tmp_path):
    """`helm package` is not: it writes the time."""
    first = pack_chart(chart, IDENTITY, tmp_path / "1.tgz")
    (chart / "Chart.yaml").touch()
    assert first.digest == pack_chart(chart, IDENTITY, tmp_path / "2.tgz").digest


@pytest.mark.parametrize("pattern", ["!keep", "/rooted", "a/b", "**"])
def test_patterns_that_would_be_misread_are_refused(chart, tmp_path, pattern):
    """Else the archive would hold what Helm's own would not."""
    (chart / ".helmignore").write_text(f"{pattern}\n", encoding="utf-8")
    with pytest.raises(ContentRefused, match="expected a name, a glob or a folder"):
        pack_chart(chart, IDENTITY, tmp_path / "chart.tgz")


@pytest.mark.parametrize("key", ["name", "version", "appVersion"])
def test_a_chart_without_a_version_is_refused(chart, tmp_path, key):
    """It would be released with none."""
    lines = [line for line in CHART.splitlines(keepends=True) if not line.startswith(f"{key}:")]
    (chart / "Chart.yaml").write_text("".join(lines), encoding="utf-8")
    with pytest.raises(ContentRefused, match=f"Chart.yaml has no field '{key}'"):
        pack_chart(chart, IDENTITY, tmp_path / "chart.tgz")


def test_manifests_are_what_is_copied_to_hosts(tmp_path):
    """The static pods' patches and configuration, and no code; the rest is rendered."""
    pack_manifests(ROOT / "deploy", IDENTITY, tmp_path / "manifests.tgz")
    files = content(tmp_path / "manifests.tgz")
    assert {Path(path).suffix for path in files} == {".yaml"}
    assert "deploy/kubeadm/scheduler-config.yaml" in files
