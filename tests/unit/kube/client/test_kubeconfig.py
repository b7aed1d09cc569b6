"""What the files of KUBECONFIG mean: the context, its cluster and user, and as whom."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from kube.client.configuration import load_configuration
from kube.client.kubeconfig import Impersonation, read_kubeconfig
from kube.errors import Unreachable

CREDENTIAL = "t0p-secret"


def write(path, name, *, current=None, namespace=None, server=None, user=None):
    """Write a kubeconfig with one context, cluster and user of a name."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server or f"http://{name}"}}],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": name, "namespace": namespace}}
        ],
        "users": [{"name": name, "user": user or {}}],
    }
    if current is not None:
        content["current-context"] = current
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def joined(*paths):
    """Files as KUBECONFIG joins them."""
    return Path(os.pathsep.join(map(str, paths)))


def loaded(kubeconfig, context=None):
    """The client's configuration of a kubeconfig."""
    return asyncio.run(load_configuration(kubeconfig, context))


@pytest.mark.parametrize(
    ("currents", "given", "expected"),
    [
        pytest.param(("a", "b"), None, "a", id="the first file's"),
        pytest.param((None, "b"), None, "b", id="the first that has one"),
        pytest.param(("", "b"), None, "b", id="an empty one is none"),
        pytest.param(("a", ""), None, "a", id="an empty last one changes nothing"),
        pytest.param(("b", "a"), None, "b", id="of another file than the one that names it"),
        pytest.param(("a", "b"), "b", "b", id="the one that is given"),
        pytest.param((None, None), "b", "b", id="given where no file names one"),
        pytest.param(("a", None), "", "a", id="given empty"),
    ],
)
def test_the_context_is_that_of_kubectl(tmp_path, currents, given, expected):
    """Another context would be an answer about another cluster."""
    kubeconfig = joined(
        write(tmp_path / "1", "a", current=currents[0], namespace="ns-a"),
        write(tmp_path / "2", "b", current=currents[1], namespace="ns-b"),
    )
    assert read_kubeconfig(kubeconfig, given).context_name == expected
    assert read_kubeconfig(kubeconfig, given).namespace == f"ns-{expected}"
    assert loaded(kubeconfig, given).host == f"http://{expected}"


def test_of_entries_with_one_name_the_first_files_are_taken_whole(tmp_path):
    """What only the second has is not added."""
    kubeconfig = joined(
        write(tmp_path / "1", "a", server="http://first"),
        write(
            tmp_path / "2",
            "a",
            current="a",
            namespace="ns",
            server="http://second",
            user={"token": CREDENTIAL, "as": "jane"},
        ),
    )
    found = read_kubeconfig(kubeconfig, None)
    assert (found.namespace, found.impersonation) == ("", Impersonation())
    configuration = loaded(kubeconfig)
    assert (configuration.host, configuration.api_key) == ("http://first", {})


def test_files_that_are_missing_or_empty_are_left_out(tmp_path):
    """As long as one has the context."""
    (tmp_path / "empty").write_text("", encoding="utf-8")
    known = write(tmp_path / "1", "a", current="a", namespace="ns")
    kubeconfig = joined(tmp_path / "missing", tmp_path / "empty", "", known)
    assert read_kubeconfig(kubeconfig, None).namespace == "ns"


def test_paths_are_relative_to_the_file_that_has_them(tmp_path):
    """A user's certificate is beside the user, wherever the cluster is."""
    user = {"client-certificate": "crt", "client-key": str(tmp_path / "key"), "tokenFile": "token"}
    cluster = write(tmp_path / "clusters" / "1", "a", server="https://127.0.0.1:1")
    content = json.loads(cluster.read_text(encoding="utf-8"))
    del content["users"]
    content["clusters"][0]["cluster"]["certificate-authority"] = "ca"
    cluster.write_text(json.dumps(content), encoding="utf-8")
    users = write(tmp_path / "users" / "2", "a", current="a", user=user)
    for path in ("clusters/ca", "users/crt", "users/token", "key"):
        (tmp_path / path).write_text(CREDENTIAL, encoding="utf-8")
    found = loaded(joined(cluster, users))
    assert found.ssl_ca_cert == str(tmp_path / "clusters/ca")
    assert (found.cert_file, found.key_file) == (str(tmp_path / "users/crt"), str(tmp_path / "key"))
    assert found.api_key == {"BearerToken": f"Bearer {CREDENTIAL}"}


@pytest.mark.parametrize(
    ("command", "expected"),
    [("./bin/plugin", "{folder}/bin/plugin"), ("/bin/plugin", "/bin/plugin"), ("plugin", "plugin")],
    ids=["relative to the file", "absolute", "of PATH"],
)
def test_an_exec_plugin_is_found_as_by_kubectl(tmp_path, command, expected):
    """The directory where the command is called may belong to another user."""
    user = {"exec": {"command": command, "args": ["x"]}}
    found = read_kubeconfig(write(tmp_path / "1", "a", current="a", user=user), None)
    plugin = {"command": expected.format(folder=tmp_path), "args": ["x"]}
    assert found.content["users"] == [{"name": "a", "user": {"exec": plugin}}]


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        pytest.param({"as": None, "as-groups": None}, [], id="null is none"),
        pytest.param({"as": "jane"}, [("Impersonate-User", "jane")], id="a user"),
        pytest.param(
            {
                "as": "jane",
                "as-uid": "7",
                "as-groups": ["a", "b"],
                "as-user-extra": {"example.com/Röle%": ["x", "y"], "none": None},
            },
            [
                ("Impersonate-User", "jane"),
                ("Impersonate-Uid", "7"),
                ("Impersonate-Group", "a"),
                ("Impersonate-Group", "b"),
                ("Impersonate-Extra-example.com%2FR%C3%B6le%25", "x"),
                ("Impersonate-Extra-example.com%2FR%C3%B6le%25", "y"),
            ],
            id="with uid, groups and extra",
        ),
    ],
)
def test_whom_a_kubeconfig_impersonates(tmp_path, user, expected):
    """Without these headers the rights are those of who authenticates, which are often more."""
    path = write(tmp_path / "1", "a", current="a", user=user)
    assert read_kubeconfig(path, None).impersonation.headers() == expected


@pytest.mark.parametrize(
    "wanted",
    [
        Impersonation(uid="7"),
        Impersonation(groups=("a",)),
        Impersonation(extra=(("k", "v"),)),
        Impersonation(user="jane\n"),
    ],
    ids=["a uid alone", "groups alone", "extra alone", "two lines"],
)
def test_an_impersonation_that_cannot_be_sent_is_refused(wanted, check_message):
    """As kubectl refuses it; the API server would name no flag and no file."""
    with pytest.raises(ValueError, match=r"(?i)impersonate") as caught:
        wanted.headers()
    check_message(caught.value)


@pytest.mark.parametrize(
    ("text", "context", "match"),
    [
        pytest.param(None, None, "there is no such file", id="no file"),
        pytest.param("", None, "it has no current-context", id="empty"),
        pytest.param('current-context: ""', None, "it has no current-context", id="names none"),
        pytest.param("current-context: a", None, "it has no context 'a'", id="a context too few"),
        pytest.param("current-context: a", "b", "it has no context 'b'", id="a given one"),
        pytest.param(f"- {CREDENTIAL}", None, "unreadable", id="a list"),
        pytest.param(f"users: [{{token: {CREDENTIAL}", None, "unreadable", id="cut"),
        pytest.param(f"users: {CREDENTIAL}", None, "unreadable", id="no list of users"),
        pytest.param(
            "{current-context: a, contexts: [{name: a, context: {user: u}}],"
            " users: [{name: u, user: {as: 7}}]}",
            None,
            "as is 7, expected a string",
            id="a user to impersonate that is no text",
        ),
        pytest.param(
            "{current-context: a, contexts: [{name: a, context: {user: u}}],"
            " users: [{name: u, user: {as: jane, as-groups: [7]}}]}",
            None,
            r"as-groups is \[7\], expected a list of strings",
            id="a group that is no text",
        ),
    ],
)
def test_what_cannot_be_used_is_told_by_its_path(tmp_path, text, context, match):
    """And without what it holds."""
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(Unreachable, match=f"kubeconfig {path}: {match}") as caught:
        read_kubeconfig(path, context)
    assert caught.value.reason == "BadConfiguration"
    assert CREDENTIAL not in str(caught.value)


def test_a_folder_is_no_kubeconfig(tmp_path):
    """The operating system's own words."""
    with pytest.raises(Unreachable, match="Is a directory"):
        read_kubeconfig(tmp_path, None)


def test_a_context_without_a_known_user_is_anonymous(tmp_path):
    """As for kubectl; the API server then says what is missing."""
    path = tmp_path / "kubeconfig"
    text = "contexts: [{name: a, context: {cluster: c, user: u, namespace: ns}}]\n"
    text += "clusters: [{name: c, cluster: {server: 'https://c'}}]\n"
    path.write_text(text, encoding="utf-8")
    found = read_kubeconfig(path, "a")
    assert (found.namespace, found.impersonation) == ("ns", Impersonation())
    assert (loaded(path, "a").host, loaded(path, "a").api_key) == ("https://c", {})


def test_a_pipe_is_read_once_for_all_uses(tmp_path):
    """`--kubeconfig <(...)` of a shell: it is empty the second time."""
    content = write(tmp_path / "a", "a", current="a", namespace="ml").read_bytes()
    reading, writing = os.pipe()
    try:
        os.write(writing, content)
        os.close(writing)
        pipe = Path(f"/dev/fd/{reading}")
        assert read_kubeconfig(pipe, None).namespace == "ml"
        assert read_kubeconfig(pipe, None).namespace == "ml"
    finally:
        os.close(reading)


def test_a_date_is_text(tmp_path):
    """As for kubectl, also in an entry that is not in use and in an exec plugin's variables."""
    path = tmp_path / "config"
    path.write_text(
        "contexts: [{name: 2024-01-01, context: {namespace: ml}}, {name: a, context: {user: u}}]\n"
        "users: [{name: u, user: {exec: {command: c, env: [{name: N, value: 2025-01-31}]}}}]\n"
        "current-context: a\n"
    )
    read = read_kubeconfig(path, None)
    assert read.context_name == "a"
    assert read.content["users"] == [
        {
            "name": "u",
            "user": {"exec": {"command": "c", "env": [{"name": "N", "value": "2025-01-31"}]}},
        }
    ]
    assert read_kubeconfig(path, "2024-01-01").namespace == "ml"
