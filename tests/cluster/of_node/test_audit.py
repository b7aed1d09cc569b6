"""The audit of running pods, beside figures that are computed from PodResources alone.

`audited_cluster` has real kubelets that allocate at random, kube-scheduler as it comes, and the
reporter; there is no extender.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections import defaultdict
from statistics import fmean
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.node.audited_cluster import (
    FREE,
    MACHINES,
    PLUGIN,
    READER,
    SIZES,
    WITHOUT_STATUS,
    AuditedCluster,
    audited_cluster,
)
from tests.cluster.node.real_pods import is_running, real_container, real_pod
from tests.cluster.of_install.kubectl_coterie import PROGRAMS, KubectlCoterie
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.cluster.node.expected_audit import ExpectedNode, ExpectedSet, Holder

pytestmark = [pytest.mark.cluster, pytest.mark.kubelet, pytest.mark.own_plane]

OURS = {names.TOPOLOGY, names.DEVICES}
GBYTES, SHARE = 6e-4, 6e-5
"""Half of the last digit that a report has, and a little."""
UNITS = ("gbytes_per_s", "share")
FIGURES = ("has", "could_have", "best_effort")


@pytest.fixture(scope="module")
def cluster(binaries, node_tools, tmp_path_factory):
    """The cluster, which every test leaves as it was."""
    with audited_cluster(binaries, node_tools, tmp_path_factory.mktemp("audited")) as running:
        yield running


def figure(gbytes_per_s: float, share: float) -> dict[str, Any]:
    """A figure of a report that is equal to this in all of its digits."""
    return {
        "gbytes_per_s": pytest.approx(gbytes_per_s, abs=GBYTES),
        "share": pytest.approx(share, abs=SHARE),
    }


def expected_set(one: ExpectedSet) -> dict[str, Any]:
    """What a report has to say of a container."""
    best = one.best_empty
    return {
        "has": figure(one.has, one.has / best),
        "could_have": figure(one.could_have, one.could_have / best),
        "best_effort": figure(one.best_effort, one.best_effort_share),
        "loss": pytest.approx(one.loss, abs=SHARE),
        "is_best": one.is_best,
        "limit": one.limit,
    }


def check_node(node: ExpectedNode, sets: Mapping[Holder, dict[str, Any]]) -> None:
    """Compare every figure of the containers of a node."""
    assert sets.keys() == node.several.keys()
    for holder, one in sets.items():
        own = node.several[holder]
        expected = expected_set(node.figures(holder))
        assert {key: one[key] for key in expected} == expected, (holder, own)
        assert set(one["gpus"]) == own
        could_have = one["could_have_gpus"]
        assert set(could_have) <= own | node.free
        assert len(could_have) == len(own)
        assert node.worth(could_have) == pytest.approx(
            one["could_have"]["gbytes_per_s"], abs=GBYTES
        )


def check_machines(report: Mapping[str, Any], nodes: Mapping[str, ExpectedNode]) -> None:
    """Compare the sums and means of machine types."""
    by_type: dict[str, list[str]] = defaultdict(list)
    for name, node in nodes.items():
        by_type[node.name].append(name)
    machines = {one["name"]: one for one in report["machines"]}
    assert machines.keys() == by_type.keys()
    for kind, members in by_type.items():
        machine, own = machines[kind], [nodes[name] for name in members]
        sets = [one for one in report["sets"] if one["node"] in members]
        assert {one["machine"] for one in sets} <= {machine["digest"]}
        assert machine["n_nodes"] == len(own)
        assert machine["n_gpus"] == sum(node.n_gpus for node in own)
        assert machine["n_free"] == sum(len(node.free) for node in own)
        assert machine["n_stranded"] == sum(node.n_stranded for node in own)
        assert machine["n_sets"] == len(sets)
        assert not machine["is_even"]
        for key in FIGURES:
            means = [fmean(one[key][unit] for one in sets) for unit in UNITS] if sets else []
            assert machine[key] == (figure(*means) if sets else None), key


def sets_of(report: Mapping[str, Any], node: str) -> dict[Holder, dict[str, Any]]:
    """The judged containers of a node."""
    own = [one for one in report["sets"] if one["node"] == node]
    return {(one["pod"], one["container"]): one for one in own}


def test_every_figure_is_that_of_an_independent_computation(cluster: AuditedCluster):
    """Each set, each machine type and the count of pods, where the kubelet chose at random."""
    report, nodes = cluster.audit(), cluster.expected()
    print(report["headline"])  # noqa: T201 - what was found
    for name, node in nodes.items():
        check_node(node, sets_of(report, name))
    check_machines(report, nodes)
    assert {one["source"] for one in report["sets"]} == {"report"}
    figures = [node.figures(holder) for node in nodes.values() for holder in node.several]
    losses = [round(one.loss, 4) for one in figures if not one.is_best]  # as the report lists them
    n_single = sum(max(sizes) == 1 for sizes in SIZES.values())
    assert report["pods"] == {
        "n_all": len(SIZES),
        "n_single": n_single,
        "n_judged": len(SIZES) - n_single,
        "n_best": len(figures) - len(losses),
        "n_losing": len(losses),
        "mean_loss": pytest.approx(fmean(losses), abs=SHARE) if losses else None,
    }
    for empty in ("not_judged", "uncovered_nodes", "degraded", "unhealthy"):
        assert report[empty] == []
    assert report["n_gpus_of_unlisted_pods"] == 0
    for stub in cluster.stubs.values():
        assert stub.calls_of("GetPreferredAllocation") == []


def test_only_two_annotations_of_the_nodes_are_written(cluster: AuditedCluster):
    """By the reporters; who audits writes nothing, and no container is restarted."""
    n_before = len(cluster.requests_of(READER))
    cluster.audit()
    requests = cluster.requests_of(READER)[n_before:]
    assert [(one["verb"], one["objectRef"]["resource"]) for one in requests] == [
        ("list", "nodes"),
        ("list", "pods"),
    ]
    for one in cluster.requests_of(PLUGIN):
        about, body = one["objectRef"], one["requestObject"]
        assert (one["verb"], about["resource"], "subresource" in about) == ("patch", "nodes", False)
        assert about["name"] in MACHINES
        assert (body.keys(), body["metadata"].keys()) == ({"metadata"}, {"annotations"})
        assert body["metadata"]["annotations"].keys() <= OURS
    now = cluster.state()
    for node in now["nodes"].values():
        for key in OURS:
            del node["annotations"][key]
    assert now == cluster.before
    assert [stub.streams for stub in cluster.stubs.values()] == [1] * len(MACHINES)


def test_saved_lists_give_the_same_report(cluster: AuditedCluster, tmp_path: Path):
    """Of `kubectl get` with the same rights, by `coterie-topology audit`."""
    command = [str(PROGRAMS / "coterie-topology"), "audit", "-o", "json"]
    for kind in ("nodes", "pods"):
        file = tmp_path / f"{kind}.json"
        get = ("get", kind, "-A", "-o", "json")
        saved = cluster.plane.kubectl(*get, kubeconfig=cluster.coterie.kubeconfig)
        file.write_text(saved, encoding="utf-8")
        command += [f"--{kind}", str(file)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    assert done.stdout == cluster.coterie("audit", "-o", "json")


@pytest.mark.parametrize("name", FREE)
def test_a_pod_that_no_report_names_yet(cluster: AuditedCluster, name: str):
    """From Kubernetes 1.36 on pod.status says what it has; else the audit says what is unknown."""
    is_known = cluster.nodes[name].reports_devices and name != WITHOUT_STATUS
    cluster.plugins[name].program.stop()
    try:
        cluster.pods.create(real_pod("late", real_container("main", 2), nodeName=name))
        cluster.pods.until("late", has_devices if is_known else is_running)
        report, nodes = cluster.audit(), cluster.expected()
    finally:
        cluster.pods.delete("late")
        cluster.start_plugin(name)
    if is_known:
        check_machines(report, nodes)
        assert sets_of(report, name)["late", "main"].pop("source") == "status"
    else:
        check_unknown(report, name, nodes.pop(name))
    for one, node in nodes.items():
        check_node(node, sets_of(report, one))
    assert {one.get("source", "report") for one in report["sets"]} == {"report"}


def check_unknown(report: Mapping[str, Any], name: str, node: ExpectedNode) -> None:
    """Where one pod's GPUs are known by number only, nothing on its node is judged."""
    assert sets_of(report, name) == {}
    reasons = {(one["pod"], one["container"]): one["reason"] for one in report["not_judged"]}
    assert reasons.pop(("late", "main")) == "its GPUs are known by number only"
    assert reasons.keys() == node.several.keys() - {("late", "main")}
    assert set(reasons.values()) <= {"it is not known which other GPUs of its node are free"}
    assert [one["node"] for one in report["uncovered_nodes"]] == [name]


def has_devices(pod: Mapping[str, Any]) -> bool:
    """Whether its status names devices (Kubernetes 1.36)."""
    statuses = pod["status"].get("containerStatuses", [])
    return is_running(pod) and all("allocatedResourcesStatus" in one for one in statuses)


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_is_shown_without_an_extender(cluster: AuditedCluster, name: str):
    """By `kubectl coterie topology`: who has which GPU comes from the node's report."""
    shown = json.loads(cluster.coterie("topology", name, "-o", "json"))
    assert [gpu["uuid"] for gpu in shown["gpus"]] == list(cluster.ids[name])
    owners = {one["gpu"]: one["pod"] for one in shown["owners"] if one["pod"] is not None}
    held = cluster.held(name)
    assert owners == {gpu: f"default/{pod}" for (pod, _), gpus in held.items() for gpu in gpus}
    assert "No extender: owners as the reporter knows them" in shown["note"]
    text = cluster.coterie("topology", name)
    assert text.startswith(f"{name}   {MACHINES[name]}   8 x ")
    assert {pod for pod, _ in held} <= set(re.findall(r"default/([\w-]+)", text))


@pytest.mark.parametrize("command", [("audit",), ("topology", "pairs")], ids=lambda one: one[0])
def test_who_has_no_right_learns_which_one_is_missing(
    cluster: AuditedCluster, command: tuple[str, ...]
):
    """One sentence on standard error, and nothing on standard output."""
    stranger = KubectlCoterie(cluster.plane, cluster.plane.kubeconfig("stranger"))
    done = stranger.run(*command)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert 'User "stranger" cannot ' in line
    assert 'resource "nodes"' in line
