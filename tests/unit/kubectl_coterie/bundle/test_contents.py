"""What a bundle holds, and its archive."""

from __future__ import annotations

import io
import json
import tarfile

from kubectl_coterie.bundle import Contents, NameHashes, write_archive
from kubectl_coterie.bundle.contents import FOLDER
from kubectl_coterie.bundle.settings import parsed_configs, policies_of
from kubectl_coterie.cluster import Read


def contents():
    """Two values, a log, and two things that could not be had."""
    made = Contents()
    made.add("versions.json", {"command": "1"})
    made.add_read("nodes.json", Read([{"metadata": {"name": "gpu-0"}}]), kind="node")
    made.add_read("sums.json", Read([1, 2]), sum)
    made.add_read("pods.json", Read(missing="may not list pods"))
    made.add_log("extender/ns_gpu-0/main.log", Read('{"pod": "ml/gone"}\nbound gone\n'))
    made.add_log("plugin/x.log", Read(missing="no log of gone"))
    return made


def test_the_manifest_says_what_is_there_and_what_is_not():
    """With the reason, which names the missing right."""
    members = contents().members({"tail": 3}, None)
    manifest = json.loads(members["manifest.json"])
    assert next(iter(members)) == "manifest.json"
    assert [one["path"] for one in manifest["files"]] == [*members][1:]
    assert all(one["bytes"] == len(members[one["path"]]) for one in manifest["files"])
    assert manifest["missing"] == [
        {"what": "pods.json", "why": "may not list pods"},
        {"what": "plugin/x.log", "why": "no log of gone"},
    ]
    assert (manifest["tail"], manifest["names_hashed"]) == (3, False)
    assert json.loads(members["sums.json"]) == 3


def test_hashing_reaches_every_file_and_every_name():
    """Paths, the manifest and logs too."""
    members = contents().members({}, NameHashes(b"key"))
    everything = json.dumps([path + octets.decode() for path, octets in members.items()])
    for name in ("gpu-0", "gone", "ml/"):
        assert name not in everything
    assert json.loads(members["manifest.json"])["names_hashed"] is True
    assert json.loads(members["versions.json"]) == {"command": "1"}


def test_free_text_is_removed_with_the_names():
    """Messages of conditions, and what a scheduler's plugins are told."""
    made = Contents()
    made.add(
        "a.json",
        {
            "conditions": [{"type": "Ready", "message": "at acme"}, "odd"],
            "tls": {"caData": "acme"},
            "profiles": ({"pluginConfig": ["acme"]},),
            "odd": {"conditions": "acme"},
        },
    )
    kept = json.loads(made.members({}, NameHashes(b"key"))["a.json"])
    assert kept == {
        "conditions": [{"type": "Ready", "message": "removed"}, "removed"],
        "tls": {"caData": "removed"},
        "profiles": [{"pluginConfig": "removed"}],
        "odd": {"conditions": "removed"},
    }
    assert "at acme" in made.members({}, None)["a.json"].decode()


def test_the_archive_holds_one_folder():
    """Unpacking makes one entry."""
    file = io.BytesIO()
    write_archive({"a.json": b"1", "b/c.log": b"22"}, file)
    file.seek(0)
    with tarfile.open(fileobj=file) as archive:
        found = {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]
    assert found == {f"{FOLDER}/a.json": b"1", f"{FOLDER}/b/c.log": b"22"}


def test_a_configuration_is_kept_without_keys():
    """kube-scheduler takes private keys inline."""
    config = {
        "kind": "KubeSchedulerConfiguration",
        "extenders": [{"tlsConfig": {"keyData": "c2VjcmV0", "caData": "Y2E="}}],
    }
    kept = parsed_configs({"ns/a": Read({"data": {"c": json.dumps(config), "other": "secret"}})})
    assert kept == {
        "ConfigMap ns/a (c)": config
        | {"extenders": [{"tlsConfig": {"keyData": "removed", "caData": "Y2E="}}]}
    }


def test_policies_of_others_are_left_out():
    """Their names may say much of a company."""
    ours = {"metadata": {"name": "coterie-own-keys", "managedFields": []}, "spec": {"a": 1}}
    other = {"metadata": {"name": "acme"}, "spec": {}}
    assert policies_of([ours, other]) == [{"name": "coterie-own-keys", "spec": {"a": 1}}]
