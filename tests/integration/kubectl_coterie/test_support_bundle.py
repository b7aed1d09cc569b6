"""`kubectl coterie support-bundle`: what is in it, and what is not."""

from __future__ import annotations

import errno
import json
import re
import stat
import tarfile
from dataclasses import dataclass

import pytest
import yaml

from kubectl_coterie.commands import support_bundle
from tests.integration.kubectl_coterie.installed_cluster import (
    ADMISSION,
    EVENTS,
    NODE,
    NODES,
    PODS,
    InstalledCluster,
    run,
)

FAST = ("--request-timeout", "10")
PRIVATE = "hunter2"
PLACED = "odd-1"
EXTENDER = "extender/coterie-system_coterie-second-scheduler-1"


@dataclass
class Bundle:
    """What was written, by path below its folder."""

    files: dict[str, str]
    out: str
    err: str

    def json(self, path):
        """A file of JSON."""
        return json.loads(self.files[path])

    @property
    def missing(self):
        """What the manifest says is not there, with its reason."""
        return {one["what"]: one["why"] for one in self.json("manifest.json")["missing"]}


def collected(folder, capsys, *arguments, cluster=None, by_address=False):
    """Collect a bundle and unpack it."""
    path = folder / "bundle.tar.gz"
    served = cluster or InstalledCluster()
    with served.running(folder) as flags:
        address = ("--extender-url", served.extender_url) if by_address else ()
        assert run("support-bundle", str(path), *arguments, *flags, *FAST, *address) == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    files = {}
    with tarfile.open(path) as archive:
        for member in archive:
            content = archive.extractfile(member)
            assert content is not None
            files[member.name.removeprefix("coterie-support/")] = content.read().decode()
    said = capsys.readouterr()
    assert said.out.startswith(f"{path}: ")
    return Bundle(files, said.out, said.err)


def test_it_holds_what_a_maintainer_needs(tmp_path, capsys):
    """State, metrics, logs, settings and the checks; the manifest lists all."""
    bundle = collected(tmp_path, capsys)
    listed = [one["path"] for one in bundle.json("manifest.json")["files"]]
    assert sorted(listed) == sorted(set(bundle.files) - {"manifest.json"})
    assert {
        "check.json",
        "events/coterie-extender.json",
        f"{EXTENDER}/extender.log",
        f"{EXTENDER}/kube-scheduler.log",
        f"{EXTENDER}/metrics.txt",
        f"{EXTENDER}/state.json",
        "leases/coterie-system_coterie-scheduler.json",
        "nodes.json",
        "plugin/coterie-node_coterie-plugin-1/plugin.log",
        "pods.json",
        "policies/validating.json",
        "programs.json",
        "read-api/groups.json",
        "read-api/pending.json",
        "scheduler-config.json",
        "versions.json",
    } <= set(listed)
    assert bundle.json("versions.json")["kubernetes"] == "v1.36.3"
    assert bundle.json(f"{EXTENDER}/state.json") == {"generation": 7}
    assert "train-0" in bundle.files[f"{EXTENDER}/extender.log"]
    assert bundle.missing == {
        f"{EXTENDER}/decisions": "the decision log is not written (setting decision_log)"
    }
    assert f"not collected: {EXTENDER}/decisions" in bundle.err


def test_planted_secrets_are_in_no_file(tmp_path, capsys):
    """Whatever people write into objects of each type that is read; `PLACED` alone is kept."""
    cluster = InstalledCluster()
    plant(cluster)
    bundle = collected(tmp_path, capsys, cluster=cluster)
    assert PRIVATE not in json.dumps(bundle.files)
    assert {"train-0", PLACED, NODE} <= set(re.findall(r"[a-z]+-[0-9]+", bundle.files["pods.json"]))
    assert "managedResources" in bundle.files["scheduler-config.json"]
    assert not any("secrets" in request for request in cluster.requests)


def test_a_key_in_a_wrong_place_is_in_no_file(tmp_path, capsys):
    """A configuration that cannot be read is why people make bundles."""
    cluster = InstalledCluster()
    (path,) = (path for path in cluster.objects if "configmaps" in path)
    data = cluster.objects[path]["data"]
    config = yaml.safe_load(data["scheduler-config.yaml"])
    config["extenders"][0]["tlsConfig"] = [{"keyData": PRIVATE}]
    data["scheduler-config.yaml"] = yaml.safe_dump(config)
    bundle = collected(tmp_path, capsys, cluster=cluster)
    assert "an object cannot be read" in bundle.files["check.json"]
    assert PRIVATE not in json.dumps(bundle.files)


def plant(cluster: InstalledCluster) -> None:
    """Put the secret into every field of the API objects that is not known to be needed."""
    env = [{"name": "TOKEN", "value": PRIVATE}]
    for pod in cluster.lists[PODS]:
        pod["metadata"] |= {"managedFields": [PRIVATE], "ownerReferences": [{"name": PRIVATE}]}
        pod["metadata"].setdefault("labels", {})["team"] = PRIVATE
        pod["metadata"].setdefault("annotations", {})[f"{PRIVATE}.example/note"] = PRIVATE
        pod["spec"]["volumes"] = [
            *pod["spec"].get("volumes", ()),
            {"secret": {"secretName": PRIVATE}, "hostPath2": PRIVATE},
        ]
        pod["spec"] |= {"serviceAccountName": PRIVATE, "hostname": PRIVATE}
        condition = {"type": "PodScheduled", "status": "False", "message": f"claim {PRIVATE}"}
        pod["status"] |= {"podIP": PRIVATE, "conditions": [condition]}
        for container in pod["spec"]["containers"]:
            container["env"] = [*container.get("env", ()), *env]
            container["args"] = [*container.get("args", ()), PRIVATE]
            container |= {
                "command": [*container.get("command", ()), PRIVATE],
                "workingDir": PRIVATE,
            }
    odd = {"name": PLACED, "labels": "of no object", "annotations": {"a": PRIVATE}}
    cluster.lists[PODS].append({"metadata": odd, "spec": {"x": PRIVATE}})
    for node in cluster.lists[NODES]:
        node["metadata"]["labels"] = {"team": PRIVATE}
        node["metadata"]["annotations"][f"{PRIVATE}.example/note"] = PRIVATE
        node["spec"] = {"providerID": PRIVATE}
        node["status"] |= {"addresses": [{"address": PRIVATE}], "images": [{"names": [PRIVATE]}]}
    for event in cluster.lists[EVENTS]:
        event |= {"related": {"name": PRIVATE}}
    for kind in ("validatingadmissionpolicies", "validatingadmissionpolicybindings"):
        cluster.lists[f"{ADMISSION}/v1/{kind}"].append(
            {"metadata": {"name": "acme"}, "spec": {"variables": PRIVATE}}
        )
    (path,) = (path for path in cluster.objects if "configmaps" in path)
    data = cluster.objects[path]["data"]
    config = yaml.safe_load(data["scheduler-config.yaml"])
    config["profiles"][0]["pluginConfig"] = [{"name": "X", "args": {"password": PRIVATE}}]
    config["extenders"][0]["tlsConfig"] = {"keyData": PRIVATE, "caData": PRIVATE}
    data |= {"scheduler-config.yaml": yaml.safe_dump(config), "other": PRIVATE}


def test_it_says_what_it_will_hold_before_it_writes(tmp_path, capsys):
    """On standard error, so that whoever ends it there has written nothing."""
    path = tmp_path / "no" / "bundle.tar.gz"
    with InstalledCluster().running(tmp_path) as flags:
        assert run("support-bundle", str(path), *flags, *FAST) == 1
    said = capsys.readouterr()
    assert said.out == ""
    rows = {tuple(line.split()) for line in said.err.splitlines()}
    assert {("nodes.json", "1", "1", "-"), ("plugin/", "1", "-", "2")} <= rows
    assert said.err.startswith(f"{path} will hold:")
    assert "no Secret" in said.err
    assert "cannot be written" in said.err


def test_logs_are_cut_to_their_last_lines(tmp_path, capsys):
    """By the API server, so that nothing more is sent."""
    cluster = InstalledCluster()
    collected(tmp_path, capsys, "--tail", "7", cluster=cluster)
    logs = [request for request in cluster.requests if "/log?" in request]
    assert len(logs) == 3
    assert all("tailLines=7" in request for request in logs)


def changed(cluster, change):
    """The extender's container of this cluster, changed."""
    (_, extender) = cluster.lists[PODS][0]["spec"]["containers"]
    change(extender)
    return cluster


def setting(name, value):
    """Sets a setting of a container."""

    def change(container):
        container["env"].append({"name": f"COTERIE_EXTENDER_{name}", "value": value})

    return change


@pytest.mark.parametrize(
    ("name", "value", "path", "words"),
    [
        ("TLS_CERT", "/tls.crt", "state.json", "client certificates"),
        ("LISTEN_PORT", "$(PORT)", "state.json", "listen_port of its container is $(PORT)"),
        ("DECISION_LOG", "/log/decisions", "decisions", "it is the file /log/decisions"),
    ],
)
def test_what_cannot_be_had_is_said(tmp_path, capsys, name, value, path, words):
    """With the reason, and what to do instead."""
    cluster = changed(InstalledCluster(), setting(name, value))
    bundle = collected(tmp_path, capsys, cluster=cluster)
    assert words in bundle.missing[f"{EXTENDER}/{path}"]


def test_a_program_that_was_restarted_has_two_logs(tmp_path, capsys):
    """The one before says why it ended."""
    cluster = InstalledCluster()
    for status in cluster.lists[PODS][0]["status"]["containerStatuses"]:
        status["restartCount"] = 3
    bundle = collected(tmp_path, capsys, cluster=cluster)
    assert f"{EXTENDER}/extender.previous.log" in bundle.files
    assert any("previous=true" in request for request in cluster.requests)


def test_of_many_plugins_some_logs_are_read(tmp_path, capsys):
    """Those that are not ready first; the manifest says how many were left out."""
    cluster = InstalledCluster()
    plugin = json.dumps(cluster.lists[PODS][1])
    more = [json.loads(plugin.replace("coterie-plugin-1", f"p-{k:03}")) for k in range(60)]
    more[59]["status"]["containerStatuses"][0]["ready"] = False
    cluster.lists[PODS] = [cluster.lists[PODS][0], *more]
    bundle = collected(tmp_path, capsys, cluster=cluster)
    assert "plugin/coterie-node_p-059/plugin.log" in bundle.files
    assert sum(path.startswith("plugin/") for path in bundle.files) == 50
    assert "logs of 10 more pods of the node plugin" in bundle.missing


def test_without_rights_there_is_a_bundle_that_says_so(tmp_path, capsys):
    """Each thing with the right that it lacks."""
    cluster = InstalledCluster()
    cluster.forbidden = (NODES, EVENTS, "configmaps", "admissionregistration", "/log")
    bundle = collected(tmp_path, capsys, cluster=cluster)
    lacking = bundle.missing
    assert 'User "jane"' in lacking["nodes.json"]
    assert {
        "events/coterie-extender.json",
        "policies/validating.json",
        f"{EXTENDER}/extender.log",
        "scheduler configuration in ConfigMap coterie-system/coterie-scheduler-config",
    } <= set(lacking)
    assert "pods.json" in bundle.files


def test_an_extender_that_answers_nothing_is_said(tmp_path, capsys):
    """Every file of the read API by its own reason."""
    cluster = InstalledCluster()
    cluster.extender = {}
    lacking = collected(tmp_path, capsys, cluster=cluster).missing
    assert {"read-api/cluster.json", "read-api/nodes.json", f"{EXTENDER}/metrics.txt"} <= set(
        lacking
    )


def test_without_an_extender_there_are_no_answers(tmp_path, capsys):
    """As with a reporter alone."""
    cluster = InstalledCluster()
    cluster.lists[PODS] = cluster.lists[PODS][1:]
    cluster.lists["/api/v1/namespaces/coterie-system/pods"] = []
    bundle = collected(tmp_path, capsys, cluster=cluster)
    assert "no running pod" in bundle.missing["read-api/"]
    assert "plugin/coterie-node_coterie-plugin-1/plugin.log" in bundle.files


def test_an_extender_by_its_address_gives_its_state(tmp_path, capsys):
    """Where that is the port which the scheduler calls."""
    cluster = InstalledCluster()
    assert collected(tmp_path, capsys, cluster=cluster, by_address=True).json(
        "extender/state.json"
    ) == {"generation": 7}


def test_an_address_without_state_is_said(tmp_path, capsys):
    """As of `read_port`, which has the read API alone."""
    cluster = InstalledCluster()
    del cluster.extender["/state"]
    assert (
        "extender/state.json"
        in collected(tmp_path, capsys, cluster=cluster, by_address=True).missing
    )


def test_a_file_that_is_there_is_not_overwritten(tmp_path, capsys):
    """It may be the only copy."""
    path = tmp_path / "bundle.tar.gz"
    path.write_text("precious")
    assert run("support-bundle", str(path)) == 1
    assert "is not overwritten" in capsys.readouterr().err
    assert path.read_text() == "precious"


def test_a_file_that_appears_meanwhile_is_not_overwritten(tmp_path, capsys):
    """Collecting may take minutes."""
    path = tmp_path / "bundle.tar.gz"
    cluster = InstalledCluster()
    cluster.on_request = path.touch
    with cluster.running(tmp_path) as flags:
        assert run("support-bundle", str(path), *flags, *FAST) == 1
    assert "is not overwritten" in capsys.readouterr().err
    assert path.read_bytes() == b""


def test_half_an_archive_is_not_left_behind(tmp_path, capsys, monkeypatch):
    """As on a full disk."""

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(support_bundle, "write_archive", fail)
    path = tmp_path / "bundle.tar.gz"
    with InstalledCluster().running(tmp_path) as flags:
        assert run("support-bundle", str(path), *flags, *FAST) == 1
    assert "cannot be written: No space left on device" in capsys.readouterr().err
    assert not path.exists()


def test_its_default_name_has_the_time(tmp_path, capsys, monkeypatch):
    """In the current folder."""
    monkeypatch.chdir(tmp_path)
    with InstalledCluster().running(tmp_path) as flags:
        assert run("support-bundle", *flags, *FAST) == 0
    (path,) = tmp_path.glob("coterie-support-*.tar.gz")
    assert capsys.readouterr().out.startswith(f"{path.name}: ")


@pytest.mark.parametrize("tail", ["0", "-1"])
def test_at_least_one_line_is_wanted(capsys, tail):
    """Before anything is read."""
    assert run("support-bundle", "--tail", tail) == 1
    assert "--tail is" in capsys.readouterr().err
