"""The components of a bill of materials."""

from __future__ import annotations

import pytest

from deploy.release import ContentRefused
from deploy.release.content import Component, DebianPackage
from deploy.release.sbom import debian_component, python_component

PINS = {"some-name": ("1.2", ("a" * 64, "b" * 64))}


def test_a_debian_package_is_named_as_scanners_know_it():
    """By package URL, in which `+` and `:` are escaped, with the hash of that architecture."""
    package = DebianPackage("arm64", "libstdc++6", "1:14.2+1", "pool/x.deb", "c" * 64)
    assert debian_component(package) == {
        "type": "library",
        "bom-ref": "pkg:deb/debian/libstdc%2B%2B6@1%3A14.2%2B1?arch=arm64&distro=trixie",
        "name": "libstdc++6",
        "version": "1:14.2+1",
        "purl": "pkg:deb/debian/libstdc%2B%2B6@1%3A14.2%2B1?arch=arm64&distro=trixie",
        "hashes": [{"alg": "SHA-256", "content": "c" * 64}],
    }


def test_a_distribution_has_its_licence_and_the_hashes_of_its_lock():
    """Each wheel that the lock allows may be the one in the image."""
    found = python_component(Component("Some_Name", "1.2", "MIT"), PINS)
    assert (found["purl"], found["licenses"]) == (
        "pkg:pypi/some-name@1.2",
        [{"license": {"name": "MIT"}}],
    )
    assert found["externalReferences"] == [
        {
            "type": "distribution",
            "url": "pkg:pypi/some-name@1.2",
            "hashes": [{"alg": "SHA-256", "content": letter * 64} for letter in "ab"],
        }
    ]


def test_a_licence_that_is_not_stated_is_left_out():
    """Empty would be one."""
    assert "licenses" not in python_component(Component("some.name", "1.2"), PINS)


@pytest.mark.parametrize(
    ("component", "said"),
    [
        pytest.param(Component("some-name", "1.3"), "expected what the lock has: 1.2", id="other"),
        pytest.param(Component("new", "1.0"), "expected what the lock has: nothing", id="unknown"),
    ],
)
def test_what_the_lock_does_not_have_is_refused(component, said):
    """The bill must say what is in the image."""
    with pytest.raises(ContentRefused, match=said):
        python_component(component, PINS)
