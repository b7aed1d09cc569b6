"""Versions that fit together, and those that do not."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from kubectl_coterie.check.versions import (
    OLDEST_KUBERNETES,
    TESTED_KUBERNETES,
    check_kubernetes,
    check_versions,
)
from kubectl_coterie.cluster import Read
from tests.unit.kubectl_coterie.check.looks import EXTENDER, PLUGIN, audit, look, no_right, states

PAGE = Path(__file__).resolve().parents[4] / "docs/compatibility.md"


def test_the_tested_versions_are_those_of_the_page():
    """The page is what people read; a version that is added there is added here."""
    page = PAGE.read_text(encoding="utf-8")
    tested = re.findall(r"^\| (?:Kubernetes: .*|the same) \| 1\.(\d+)\.\d+ \|", page, re.MULTILINE)
    assert {(1, int(minor)) for minor in tested} == set(TESTED_KUBERNETES)
    oldest = re.search(r"Kubernetes 1\.(\d+) should work", page)
    assert oldest is not None
    assert (1, int(oldest[1])) == OLDEST_KUBERNETES


@pytest.mark.parametrize(
    ("version", "state"),
    [
        ("v1.36.3", "ok"),
        ("v1.37.2-eks-1", "ok"),
        ("v1.34.0", "warning"),
        ("v1.38.0", "warning"),
        ("v1.33.9", "failed"),
        ("", "not known"),
    ],
)
def test_kubernetes_is_compared_with_what_is_tested(version, state):
    """Vendors add words of their own behind the number."""
    (finding,) = check_kubernetes(look(kubernetes=Read(version)))
    assert finding.state.value == state


def test_an_unread_version_says_why():
    """The API server's sentence names the right."""
    (finding,) = check_kubernetes(look(kubernetes=no_right("version")))
    assert states([finding]) == [("not known", no_right("version").missing)]


@pytest.mark.parametrize(
    ("command", "extender", "state"),
    [
        pytest.param("1.2.9", "1.2.0", "ok", id="patches of one minor version"),
        pytest.param("1.3.0", "1.2.0", "warning", id="another minor version"),
        pytest.param("unknown", "1.2.0", "not known", id="a checkout"),
    ],
)
def test_the_command_is_compared_with_the_extender(command, extender, state):
    """Fields of the read API differ between minor versions."""
    first = next(iter(check_versions(look(version=command, sums={"version": extender}))))
    assert first.state.value == state


def test_without_an_answer_the_image_says_the_extenders_version():
    """A user without port-forward may still list pods."""
    first = next(iter(check_versions(look(cluster=no_right("pods/portforward")))))
    assert states([first]) == [("ok", "this command is 1.2.0, the extender 1.2.3")]


@pytest.mark.parametrize(("version", "state"), [("1.2.0", "ok"), ("1.3.0", "warning")])
def test_in_audit_mode_reporters_are_compared_with_the_command(version, state):
    """There is no extender to compare them with."""
    first, second = check_versions(audit(version=version))
    assert states([first]) == [("ok", f"this command is {version}")]
    assert second.state.value == state


def test_an_extender_of_unknown_version_is_said():
    """With images by digest alone, or no extender."""
    by_digest = replace(EXTENDER, image="registry.example:5000/coterie/extender@sha256:0f")
    seen = look(cluster=no_right("pods/portforward"), programs=Read((by_digest,)))
    (finding,) = check_versions(seen)
    assert states([finding]) == [("not known", no_right("pods/portforward").missing)]
    (finding,) = check_versions(look(cluster=Read(), programs=Read(())))
    assert "no extender was found" in finding.about


@pytest.mark.parametrize(
    ("tags", "state"),
    [
        (("1.2.3", "1.2.4"), "ok"),
        (("1.2.3", "1.3.0"), "warning"),
        (("1.4.0",), "failed"),
        (("2.2.0",), "failed"),
        (("latest",), "not known"),
    ],
)
def test_plugins_are_compared_with_the_extender(tags, state):
    """Neighbouring minor versions work together (docs/compatibility.md)."""
    plugins = tuple(replace(PLUGIN, image=f"registry.example/plugin:{tag}") for tag in tags)
    last = list(check_versions(look(programs=Read((EXTENDER, *plugins)))))[-1]
    assert last.state.value == state
    assert last.about.startswith("node plugins by image: ")
