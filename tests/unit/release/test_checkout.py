"""Whether a checkout may be released, and under which number."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from deploy.release import Identity, ReleaseError, changelog_entry

CHANGELOG = """\
# Changelog

## [Unreleased]

### Added

- Something new.

## [0.3.0] - 2026-11-23

- A fix.

## [0.2.0]

- Without a date.

## [0.1.0] - 2026-01-01
"""


def identity(
    version: str = "0.3.0", tag: str | None = "v0.3.0", checkout: Path = Path("checkout")
) -> Identity:
    """A checkout's, made up."""
    return Identity(version, "0123456789" * 4, 1_700_000_000, tag, checkout)


@pytest.mark.parametrize(
    ("version", "chart", "image"),
    [
        pytest.param("0.3.0", "0.3.0", "0.3.0", id="a release has one number everywhere"),
        pytest.param("0.3.0rc1", "0.3.0-rc.1", "0.3.0rc1", id="a candidate"),
        pytest.param(
            "0.3.1.dev5+g7ef49e1", "0.3.1-dev.5", "0.3.1.dev5-g7ef49e1", id="between tags"
        ),
        pytest.param("1.0.0rc2.dev3", "1.0.0-rc.2.dev.3", "1.0.0rc2.dev3", id="both"),
    ],
)
def test_versions_as_charts_and_images_have_them(version, chart, image):
    """Helm takes SemVer only, and a tag of an image holds no `+`."""
    one = identity(version)
    assert (one.chart_version, one.image_tag) == (chart, image)


def test_a_version_that_helm_cannot_have_is_refused():
    """Two numbers are no SemVer."""
    with pytest.raises(ReleaseError, match=r"version '0\.3', expected three numbers"):
        _ = identity("0.3").chart_version


@pytest.fixture
def checkout(tmp_path):
    """A checkout with a changelog, committed."""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG, encoding="utf-8")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "--quiet", "--message=one"], check=True)
    return tmp_path


@pytest.mark.parametrize(
    ("version", "tag", "is_untagged", "entry"),
    [
        pytest.param("0.3.0", "v0.3.0", False, "- A fix.\n", id="that of its version"),
        pytest.param("0.3.1.dev1", None, True, "### Added\n\n- Something new.\n", id="unreleased"),
    ],
)
def test_a_release_has_its_entry(checkout, version, tag, is_untagged, entry):
    """It goes out with the release."""
    found = changelog_entry(identity(version, tag, checkout), is_untagged=is_untagged)
    assert found == entry


@pytest.mark.parametrize("tag", ["v0.3.0", None])
def test_changed_files_are_refused(checkout, tag):
    """No commit would make the release again."""
    (checkout / "other").write_text("2", encoding="utf-8")
    with pytest.raises(ReleaseError, match=r"not as committed[^$]*other"):
        changelog_entry(identity(tag=tag, checkout=checkout), is_untagged=tag is None)


@pytest.mark.parametrize(
    ("version", "tag", "said"),
    [
        pytest.param("0.3.1.dev1", None, "has tag None, expected v0.3.1.dev1", id="no tag"),
        pytest.param("0.3.0", "v0.3", "has tag v0.3, expected v0.3.0", id="another number"),
        pytest.param("0.4.0", "v0.4.0", "has no entry", id="no entry"),
        pytest.param("0.1.0", "v0.1.0", "has no entry", id="an empty entry"),
        pytest.param("0.2.0", "v0.2.0", "has no entry", id="an entry without a date"),
    ],
)
def test_what_is_no_release_is_refused(checkout, version, tag, said):
    """The number comes from the tag and from nowhere else, and users see what changed."""
    with pytest.raises(ReleaseError, match=said):
        changelog_entry(identity(version, tag, checkout))
