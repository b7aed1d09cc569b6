"""`make manifests` without Helm; what it writes is tried where there is one (tests/cluster)."""

from __future__ import annotations

from deploy.manifests import CHART, PARTS, WAYS, main
from tests.cluster.programs import build
from tests.cluster.programs.toolchain import ToolchainMissing


def test_without_helm_it_says_what_is_missing(monkeypatch, tmp_path, capsys):
    """On one line, and no file is left half-made."""

    def no_go(_major):
        msg = "go is not there"
        raise ToolchainMissing(msg)

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(build, "helm", no_go)
    assert main(("--output", str(tmp_path / "made"))) == 1
    said = capsys.readouterr().err
    assert "helm is not on the PATH, expected Helm 3 or 4" in said
    assert said.count("\n") == 1
    assert not (tmp_path / "made").exists()


def test_parts_are_made_by_templates_that_exist():
    """And every file of values is rendered."""
    for templates in PARTS.values():
        assert all((CHART / "templates" / one).is_file() for one in templates)
    assert {path.stem for path in (CHART / "ci").iterdir()} == {*WAYS, *PARTS}
