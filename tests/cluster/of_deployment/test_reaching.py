"""The commands of docs/operations.md reach the extender where the chart has it listen."""

from __future__ import annotations

import re

import pytest

from tests.cluster.control.manifests import (
    DEPLOY,
    Mode,
    extender_pod,
    extender_settings,
    objects,
)
from tests.docs.markdown import ROOT, blocks

pytestmark = pytest.mark.cluster

PAGE = ROOT / "docs" / "operations.md"
TEXT = PAGE.read_text(encoding="utf-8")
SECTION = TEXT.partition("\n### Reaching the routes\n")[2].partition("\n### ")[0]
COMMANDS = {
    Mode.SECOND_SCHEDULER: SECTION[: SECTION.find("\nAs a Service")],
    Mode.SERVICE: SECTION[SECTION.find("\nAs a Service") : SECTION.find("\nOn kubeadm")],
    Mode.KUBEADM: SECTION[SECTION.find("\nOn kubeadm") :],
}


@pytest.mark.parametrize("mode", Mode)
def test_addresses_are_those_where_the_extender_listens(mode):
    """Scheme and port as the manifest sets them; all of /state and /explain."""
    settings = extender_settings(mode)
    scheme = "https" if "tls_cert" in settings else "http"
    urls = set(re.findall(r"(https?)://[\w.-]+:(\d+)", COMMANDS[mode]))
    assert urls - {("http", settings["read_port"])} == {(scheme, settings["listen_port"])}
    assert set(re.findall(r"port-forward \S+ (\d+)", COMMANDS[mode])) <= {settings["listen_port"]}
    assert "/state" in COMMANDS[mode]
    assert "explain" in COMMANDS[mode]


@pytest.mark.parametrize("mode", Mode)
def test_metrics_are_on_one_port_everywhere(mode):
    """One scrape configuration fits all ways; where the pod names its port, by that name."""
    settings = extender_settings(mode)
    (container,) = [one for one in extender_pod(mode)["containers"] if "extender" in one["name"]]
    ports = {one["name"]: str(one["containerPort"]) for one in container["ports"]}
    assert f"on port {settings['health_port']} of each" in SECTION
    assert ports["health"] == settings["health_port"]
    assert "health_address" not in settings, "Prometheus calls from outside the host"


def test_commands_name_workloads_that_are():
    """A Deployment that the chart does not make cannot be forwarded to."""
    made = {
        one["metadata"]["name"]
        for one in objects(Mode.SERVICE.value)
        if one["kind"] == "Deployment"
    }
    assert set(re.findall(r"deployment/([\w-]+)", SECTION)) == made


def test_programs_in_containers_are_where_the_image_has_them():
    """By the name of the program, which the image puts on its path."""
    recipe = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    (entry,) = re.findall(r'^ENTRYPOINT \["(\S+-extender)"\]$', recipe, re.MULTILINE)
    run = [one.text for one in blocks(PAGE) if " exec " in one.text]
    assert run
    programs = re.findall(r" exec [^\n]* -- \\\n\s+(.+?) explain", "".join(run))
    assert programs == [entry]
