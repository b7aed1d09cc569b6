"""`kubectl coterie check` over an API server and the extender by port-forward."""

from __future__ import annotations

import json

from tests.integration.kubectl_coterie.installed_cluster import (
    ADMISSION,
    DAEMON_SETS,
    NODES,
    PODS,
    SYSTEM,
    InstalledCluster,
    run,
)

FAST = ("--request-timeout", "10")


def found(capsys):
    """States by check, from JSON."""
    items = json.loads(capsys.readouterr().out)["items"]
    return [(item["check"], item["state"]) for item in items]


def test_everything_is_read_and_judged(tmp_path, capsys):
    """The Lease of this cluster has expired, so that it exits with 1; the images have no tag."""
    cluster = InstalledCluster()
    with cluster.running(tmp_path) as flags:
        assert run("check", "-o", "json", *flags, *FAST) == 1
    assert found(capsys) == [
        ("kubernetes", "ok"),
        ("versions", "warning"),
        ("versions", "not known"),
        ("extender", "ok"),
        ("extender", "ok"),
        ("leader", "failed"),
        ("node plugin", "ok"),
        ("device plugins", "ok"),
        ("topologies", "ok"),
        ("devices", "ok"),
        ("scheduler config", "ok"),
        ("scheduler name", "ok"),
        ("pods", "ok"),
        ("policies", "ok"),
        ("certificates", "ok"),
    ]


def test_people_get_a_table_and_what_to_do(tmp_path, capsys):
    """Each fault has one line below it; the last line counts."""
    cluster = InstalledCluster()
    cluster.objects = {
        path: value for path, value in cluster.objects.items() if "leases" not in path
    }
    with cluster.running(tmp_path) as flags:
        assert run("check", *flags, *FAST) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["CHECK", "STATE", "FOUND"]
    leader = next(k for k, line in enumerate(lines) if line.startswith("leader"))
    assert "none has led yet" in lines[leader]
    assert lines[leader + 1] == "  -> see the logs of the pods that should lead"
    assert lines[-1] == "12 ok, 1 warning, 1 failed, 1 not known"


def test_a_cluster_in_audit_mode_has_no_fault(tmp_path, capsys):
    """Only a reporter runs; that its DaemonSet chooses no node is said with the label."""
    cluster = InstalledCluster()
    for one in (
        cluster.lists[PODS][1]["spec"],
        cluster.lists[DAEMON_SETS][0]["spec"]["template"]["spec"],
    ):
        one["containers"][0]["args"] = ["run", "--mode=reporter"]
    del cluster.lists[PODS][0]
    cluster.lists[f"{SYSTEM}/pods"] = []
    for kind in ("validatingadmissionpolicies", "validatingadmissionpolicybindings"):
        kept = cluster.lists[f"{ADMISSION}/v1/{kind}"]
        cluster.lists[f"{ADMISSION}/v1/{kind}"] = [
            one
            for one in kept
            if one["metadata"]["name"] in {"coterie-node-keys", "coterie-agent-rights"}
        ]
    with cluster.running(tmp_path) as flags:
        assert run("check", *flags, *FAST) == 0
        said = capsys.readouterr().out
        assert "audit mode: reporter on 1 node" in said
        assert "->" not in said.replace("-> an image's tag is no version", "")
        del cluster.lists[PODS][0]
        cluster.lists[DAEMON_SETS][0]["status"] = {"desiredNumberScheduled": 0}
        assert run("check", *flags, *FAST) == 0
        said = capsys.readouterr().out
    assert (
        "DaemonSet coterie-node/coterie-plugin chooses no node (DESIRED is 0): no node has" in said
    )
    assert "-> on each GPU node: kubectl label node NODE coterie.gpu/agent=true" in said


def test_with_few_rights_nothing_fails(tmp_path, capsys):
    """What is not known is named with its right; pods of Coterie's namespace are still seen."""
    cluster = InstalledCluster()
    cluster.forbidden = (NODES, "admissionregistration", "configmaps")
    cluster.lists.pop(PODS)
    with cluster.running(tmp_path) as flags:
        assert run("check", "-o", "json", *flags, *FAST) == 0
    states = dict(found(capsys))
    assert states["extender"] == "ok"
    assert states["node plugin"] == "warning"
    assert {states[check] for check in ("topologies", "scheduler config", "policies", "pods")} == {
        "not known"
    }


def test_without_any_right_each_is_not_known(tmp_path, capsys):
    """Whatever is refused."""
    cluster = InstalledCluster()
    cluster.forbidden = ("/api/v1/", "admissionregistration", "/version")
    with cluster.running(tmp_path) as flags:
        assert run("check", "-o", "yaml", *flags, *FAST, "--extender-namespace", "gpu") == 0
    said = capsys.readouterr().out
    assert "state: failed" not in said
    assert 'User "jane" cannot get resource "pods"' in said


def test_a_kind_that_is_not_served_is_no_policy(tmp_path, capsys):
    """Before Kubernetes 1.36 there is no MutatingAdmissionPolicy."""
    cluster = InstalledCluster()
    cluster.lists.pop(f"{ADMISSION}/v1/mutatingadmissionpolicies")
    with cluster.running(tmp_path) as flags:
        run("check", "-o", "json", *flags, *FAST)
    assert dict(found(capsys))["scheduler name"] == "ok"
    assert any("v1beta1/mutatingadmissionpolicies" in one for one in cluster.requests)


def test_objects_of_another_shape_are_passed_over(tmp_path, capsys):
    """A pod or node that cannot be read hides no other."""
    cluster = InstalledCluster()
    cluster.lists[PODS].append({"metadata": {"name": "odd", "labels": []}})
    cluster.lists[NODES].append({"metadata": {"name": "odd"}, "status": []})
    with cluster.running(tmp_path) as flags:
        run("check", "-o", "json", *flags, *FAST)
    states = dict(found(capsys))
    assert states["topologies"] == "ok"
    assert states["node plugin"] == "ok"


def test_an_extender_by_its_address_is_asked_there(tmp_path, capsys):
    """Its metrics too, where that is the port which the scheduler calls."""
    cluster = InstalledCluster()
    with cluster.running(tmp_path) as flags:
        run("check", "-o", "json", *flags, *FAST, "--extender-url", cluster.extender_url)
        assert dict(found(capsys))["certificates"] == "ok"
        cluster.extender.pop("/metrics")
        run("check", "-o", "json", *flags, *FAST, "--extender-url", cluster.extender_url)
        assert dict(found(capsys))["certificates"] == "not known"
        run("check", "-o", "json", *flags, *FAST, "--extender-url", "http://127.0.0.1:1")
        assert ("extender", "not known") in found(capsys)


def test_an_api_server_that_cannot_be_reached_ends_it(tmp_path, capsys):
    """One sentence, and no table of things that are not known."""
    with InstalledCluster().running(tmp_path) as flags:
        pass
    assert run("check", *flags, *FAST, "--extender-url", "http://127.0.0.1:1") == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: the API server cannot be reached (Unreachable)")
