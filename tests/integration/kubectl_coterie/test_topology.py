"""`kubectl coterie topology` with an extender, without one, and in each form."""

from __future__ import annotations

import builtins
import io
import json
import sys

import pytest

from tests.integration.kubectl_coterie.installed_cluster import NODE, NODES, InstalledCluster, run
from topology.annotations import DeviceHold, DevicesReport, encode_devices
from topology.model import names

FAST = ("--request-timeout", "10")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        """It is."""
        return True


def annotated(**annotations):
    """A cluster whose node has these annotations of Coterie; None removes one."""
    cluster = InstalledCluster()
    node = cluster.objects[f"{NODES}/{NODE}"]
    for key, text in annotations.items():
        if text is None:
            del node["metadata"]["annotations"][names.PREFIX + key]
        else:
            node["metadata"]["annotations"][names.PREFIX + key] = text
    return cluster


def shown(folder, capsys, *arguments, cluster=None):
    """What it prints, and on standard error."""
    with (cluster or InstalledCluster()).running(folder) as flags:
        assert run("topology", NODE, *arguments, *flags, *FAST) == 0
    return capsys.readouterr()


def test_the_drawing_shows_pods_of_the_extender(tmp_path, capsys):
    """Names of the node and its machine first."""
    lines = shown(tmp_path, capsys).out.splitlines()
    assert lines[0] == f"{NODE}   dgx-1-v100   8 x Tesla V100-SXM2-32GB"
    assert "├─ PCIe switch   [GPU0 A] [GPU1 A]   mlx5_0" in lines
    assert "A  ml/train-0   GPUs 0,1" in lines
    assert lines[-1] == "·  free   GPUs 2-7"


def test_without_an_extender_the_machine_is_still_drawn(tmp_path, capsys):
    """A reporter alone is enough; a line says what is missing."""
    cluster = annotated(devices=None)
    cluster.lists = {path: [] for path in cluster.lists}
    lines = shown(tmp_path, capsys, cluster=cluster).out.splitlines()
    assert "├─ PCIe switch   [GPU0] [GPU1]   mlx5_0" in lines
    assert lines[-1] == "Owners are not shown: no extender, and no report of the node plugin"


def test_without_an_extender_the_report_names_some_pods(tmp_path, capsys):
    """Those without a plan."""
    hold = DeviceHold("u", "ml", "eval", "main", "nvidia.com/gpu", (UUID_5,))
    cluster = annotated(devices=encode_devices(DevicesReport(holds=(hold,))))
    cluster.lists = {path: [] for path in cluster.lists}
    lines = shown(tmp_path, capsys, cluster=cluster).out.splitlines()
    assert "A  ml/eval   GPUs 5" in lines
    assert lines[-1].startswith("No extender: owners as the reporter knows them.")
    assert "is the extender installed" not in lines[-1]


def test_an_extender_that_may_not_be_looked_for_is_not_absent(tmp_path, capsys):
    """The right that is missing is named, and a namespace in which there is none."""
    cluster = InstalledCluster()
    cluster.forbidden = ("pods",)
    assert "an administrator can bind you" in shown(tmp_path, capsys, cluster=cluster).out
    elsewhere = shown(tmp_path, capsys, "--extender-namespace", "kube-system").out
    assert "no running pod in kube-system serves" in elsewhere


UUID_5 = "GPU-6d1c4a90-0f0e-4f3b-9d2a-3c1f5a7b9e05"


def test_a_node_that_the_extender_does_not_know_has_no_owners(tmp_path, capsys):
    """As one that was just added."""
    cluster = InstalledCluster()
    del cluster.extender[f"/api/v1/nodes/{NODE}"]
    said = shown(tmp_path, capsys, cluster=cluster).out
    assert said.rstrip().endswith("not shown: the extender does not know this node")


def test_the_matrix_has_its_legend(tmp_path, capsys):
    """And nothing else."""
    lines = shown(tmp_path, capsys, "--matrix").out.splitlines()
    assert lines[0] == "Accelerator links"
    assert "PCIe levels" in lines
    assert "Legend" in lines


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_programs_get_the_machine_and_its_owners(tmp_path, capsys, form):
    """The report of coterie-topology, and a list of owners."""
    said = shown(tmp_path, capsys, "-o", form).out
    if form == "json":
        found = json.loads(said)
        assert found["node"] == NODE
        assert found["machine"]["n_gpus"] == 8
        assert found["owners"][0] == {
            "gpu": 0,
            "is_free": False,
            "pod": "ml/train-0",
            "state": "held",
            "reason": None,
        }
        assert found["note"] is None
    else:
        assert f"node: {NODE}\n" in said


def test_svg_is_a_text_and_png_bytes(tmp_path, capsysbinary):
    """With the pods' sets in colour; what is not known goes to standard error."""
    with InstalledCluster().running(tmp_path) as flags:
        assert run("topology", NODE, "-o", "svg", *flags, *FAST) == 0
        svg = capsysbinary.readouterr().out.decode()
        assert svg.startswith("<svg")
        assert "ml/train-0" in svg
        nowhere = ("--extender-url", "http://127.0.0.1:1")
        assert run("topology", NODE, "-o", "png", *flags, *FAST, *nowhere) == 0
    said = capsysbinary.readouterr()
    assert said.out.startswith(b"\x89PNG")
    assert b"not shown" in said.err


def test_a_picture_is_no_text_for_a_terminal(monkeypatch, capsys):
    """It says where to put it, before anything is read."""
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert run("topology", NODE, "-o", "png", "--kubeconfig", "/nowhere") == 1
    assert "redirect it to a file" in capsys.readouterr().err


def test_without_matplotlib_a_sentence_says_what_to_install(tmp_path, capsys, monkeypatch):
    """And what is there without it."""
    real = builtins.__import__

    def refuse(name, *arguments, **options):
        if name == "topology.draw.render":
            msg = "drawing needs matplotlib: install the extra `draw`"
            raise ImportError(msg)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with InstalledCluster().running(tmp_path) as flags:
        assert run("topology", NODE, "-o", "svg", *flags, *FAST) == 1
    said = capsys.readouterr().err
    assert "needs matplotlib" in said
    assert "pipx inject coterie matplotlib" in said
    assert "[draw]" in said


@pytest.mark.parametrize(
    ("cluster", "node", "words"),
    [
        pytest.param(annotated(topology=None), NODE, "is the node plugin running", id="none"),
        pytest.param(annotated(topology="{"), NODE, "cannot be read", id="broken"),
        pytest.param(InstalledCluster(), "nowhere", "no /api/v1/nodes/nowhere", id="no such node"),
    ],
)
def test_a_node_without_a_topology_is_an_error(tmp_path, capsys, cluster, node, words):
    """One sentence with the next step."""
    with cluster.running(tmp_path) as flags:
        assert run("topology", node, *flags, *FAST) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert words in said.err
    assert said.err.count("\n") == 1


def test_a_missing_right_is_named(tmp_path, capsys):
    """Nodes are of the cluster."""
    cluster = InstalledCluster()
    cluster.forbidden = (NODES,)
    with cluster.running(tmp_path) as flags:
        assert run("topology", NODE, *flags, *FAST) == 1
    assert 'User "jane" cannot get resource' in capsys.readouterr().err
