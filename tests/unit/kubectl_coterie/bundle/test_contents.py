"""What a bundle holds, and its archive."""

from __future__ import annotations

import io
import json
import tarfile

from kubectl_coterie.bundle import Contents, write_archive
from kubectl_coterie.bundle.contents import FOLDER
from kubectl_coterie.bundle.settings import parsed_configs, policies_of
from kubectl_coterie.cluster import Read

PRIVATE = "hunter2"


def contents():
    """Two values, a log, and two things that could not be had."""
    made = Contents()
    made.add("versions.json", {"command": "1"})
    made.add_read("nodes.json", Read([{"metadata": {"name": "gpu-0"}}]))
    made.add_read("sums.json", Read([1, 2]), sum)
    made.add_read("pods.json", Read(missing="may not list pods"))
    made.add_log("extender/ns_gpu-0/main.log", Read('{"pod": "ml/gone"}\nbound gone\n'))
    made.add_log("plugin/x.log", Read(missing="no log of gone"))
    return made


def test_the_manifest_says_what_is_there_and_what_is_not():
    """With the reason, which names the missing right."""
    members = contents().members({"tail": 3})
    manifest = json.loads(members["manifest.json"])
    assert next(iter(members)) == "manifest.json"
    assert [one["path"] for one in manifest["files"]] == [*members][1:]
    assert all(one["bytes"] == len(members[one["path"]]) for one in manifest["files"])
    assert manifest["missing"] == [
        {"what": "pods.json", "why": "may not list pods"},
        {"what": "plugin/x.log", "why": "no log of gone"},
    ]
    assert manifest["tail"] == 3
    assert json.loads(members["sums.json"]) == 3


def test_the_summary_says_how_much_of_what_there_is():
    """Folders at the top are one row each, in the order in which they came."""
    assert contents().summary() == [
        ("versions.json", 1, 0, 0),
        ("nodes.json", 1, 1, 0),
        ("sums.json", 1, 0, 0),
        ("extender/", 1, 0, 2),
    ]


def test_the_archive_holds_one_folder():
    """Unpacking makes one entry."""
    file = io.BytesIO()
    write_archive({"a.json": b"1", "b/c.log": b"22"}, file)
    file.seek(0)
    with tarfile.open(fileobj=file) as archive:
        found = {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]
    assert found == {f"{FOLDER}/a.json": b"1", f"{FOLDER}/b/c.log": b"22"}


def test_a_configuration_is_kept_by_its_known_fields():
    """kube-scheduler takes private keys inline, and anybody's plugins take any argument."""
    extender = {"urlPrefix": "http://localhost", "filterVerb": "filter"}
    profile = {"schedulerName": "gpus"}
    config = {
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile | {"pluginConfig": [{"args": {"token": PRIVATE}}]}],
        "extenders": [
            extender | {"tlsConfig": {"keyData": PRIVATE, "caFile": "/ca"}, "x": PRIVATE}
        ],
        "clientConnection": {"token": PRIVATE},
    }
    odd = {"kind": "KubeSchedulerConfiguration", "extenders": PRIVATE}
    data = {"c": json.dumps(config), "odd": json.dumps(odd), "other": PRIVATE}
    assert parsed_configs({"ns/a": Read({"data": data})}) == {
        "ConfigMap ns/a (c)": {
            "kind": "KubeSchedulerConfiguration",
            "profiles": [profile],
            "extenders": [extender | {"tlsConfig": {"caFile": "/ca"}}],
        },
        "ConfigMap ns/a (odd)": "of an unexpected shape",
    }


def test_policies_of_others_are_left_out():
    """Their names may say much of a company."""
    ours = {"metadata": {"name": "coterie-own-keys", "managedFields": []}, "spec": {"a": 1}}
    other = {"metadata": {"name": "acme"}, "spec": {}}
    assert policies_of([ours, other]) == [{"name": "coterie-own-keys", "spec": {"a": 1}}]
