"""Whether a checkout may be released, and under which number."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from deploy.release import Identity, NotReleasable, changelog_entry
from deploy.release.checkout import refuse_untagged
from deploy.release.release import check_release

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
    ("version", "entry"),
    [
        pytest.param("0.3.0", "- A fix.\n", id="a version's"),
        pytest.param(None, "### Added\n\n- Something new.\n", id="what is unreleased"),
    ],
)
def test_the_entry_of_a_version_is_found(version, entry):
    """It goes out with the release."""
    assert changelog_entry(CHANGELOG, version) == entry


@pytest.mark.parametrize(
    ("version", "said"),
    [
        pytest.param("0.4.0", r"no entry '## \[0.4.0\]'", id="missing"),
        pytest.param("0.1.0", r"no entry '## \[0.1.0\]'", id="empty"),
        pytest.param("0.2.0", r"'## \[0.2.0\]' has no date", id="without a date"),
    ],
)
def test_a_release_without_its_entry_is_refused(version, said):
    """Users could not see what changed."""
    with pytest.raises(NotReleasable, match=said):
        changelog_entry(CHANGELOG, version)


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
    with pytest.raises(NotReleasable, match=r"version '0\.3', expected three numbers"):
        _ = identity("0.3").chart_version


@pytest.mark.parametrize(
    ("version", "tag", "said"),
    [
        pytest.param("0.3.1.dev1", None, "has no tag, expected one such as v0.3.0", id="no tag"),
        pytest.param("0.3.0", "v0.3", "tag 'v0.3' makes version '0.3.0'", id="another number"),
    ],
)
def test_a_commit_without_its_tag_is_refused(version, tag, said):
    """The number comes from the tag and from nowhere else."""
    with pytest.raises(NotReleasable, match=said):
        refuse_untagged(identity(version, tag))
    refuse_untagged(identity())


@pytest.fixture
def checkout(tmp_path):
    """A checkout with a changelog, committed."""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG, encoding="utf-8")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "--quiet", "--message=one"], check=True)
    return tmp_path


def test_a_release_has_its_entry(checkout):
    """That of the tag's version, or what is unreleased where no tag is wanted."""
    tagged = identity(checkout=checkout)
    assert check_release(tagged, is_untagged=False) == "- A fix.\n"
    untagged = identity("0.3.1.dev1", None, checkout)
    assert "Something new" in check_release(untagged, is_untagged=True)


def test_changed_files_are_refused(checkout):
    """No commit would make the release again; nothing is built before that is known."""
    (checkout / "other").write_text("2", encoding="utf-8")
    for one in (identity(checkout=checkout), identity("0.3.1.dev1", None, checkout)):
        with pytest.raises(NotReleasable, match=r"1 files are not as committed \(other\)"):
            check_release(one, is_untagged=one.tag is None)


@pytest.mark.parametrize(
    ("version", "tag", "said"),
    [
        pytest.param("0.3.1.dev1", None, "has no tag", id="no tag"),
        pytest.param("0.4.0", "v0.4.0", "no entry", id="no entry"),
    ],
)
def test_what_is_no_release_is_refused(checkout, version, tag, said):
    """In a checkout that is as committed."""
    with pytest.raises(NotReleasable, match=said):
        check_release(identity(version, tag, checkout), is_untagged=False)
