"""What every program reports of itself."""

from __future__ import annotations

from importlib import metadata

import pytest

from kube.metrics import program_registry


@pytest.mark.parametrize(
    ("text", "release", "revision"),
    [
        ("0.2.1.dev5+g7ef49e1", "0.2.1.dev5", "7ef49e1"),
        ("v0.2.0-5-g7ef49e1", "v0.2.0", "7ef49e1"),
        ("v0.2.0", "v0.2.0", ""),
    ],
)
def test_the_revision_stands_apart(monkeypatch, text, release, revision):
    """Of a version by the build backend, by `git describe`, and of a release."""
    monkeypatch.setattr(metadata, "version", lambda _name: text)
    labels = {"version": release, "revision": revision}
    assert program_registry("coterie_any").get_sample_value("coterie_any_build_info", labels) == 1
