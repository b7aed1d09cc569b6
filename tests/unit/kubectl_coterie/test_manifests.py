"""The pods of a file of manifests."""

from __future__ import annotations

import io
import re

import pytest

from kubectl_coterie.errors import CliError
from kubectl_coterie.manifests import ManifestPod, read_pods

SEVERAL = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
---
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: serve}
spec:
  replicas: 3
  template:
    spec: {containers: [{name: c}]}
---
{"kind": "List", "items": [{"kind": "Pod", "metadata": {"name": "p", "namespace": "own"}}]}
"""


@pytest.fixture
def read(tmp_path):
    """Reads a text as a file."""

    def go(text, namespace="ml", *, is_given=False):
        file = tmp_path / "f.yaml"
        file.write_text(text, encoding="utf-8")
        return read_pods(str(file), namespace, is_given=is_given)

    return go


def fault(read, text, **options):
    """The sentence, without the folder."""
    with pytest.raises(CliError) as caught:
        read(text, **options)
    return re.sub(r"\S*f\.yaml", "f.yaml", str(caught.value))


def test_several_documents(read):
    """Lists among them; empty ones and those without pods are left out."""
    found = read(SEVERAL)
    assert [(one.owner, one.n_pods) for one in found.pods] == [
        ("Deployment serve", 3),
        ("Pod p", 1),
    ]
    assert [one.pod["metadata"]["namespace"] for one in found.pods] == ["ml", "own"]
    assert found.left_out == ["ConfigMap settings is left out: no pods of its kind are known."]


def test_a_name_that_is_made_later(read):
    """As `kubectl create` makes it."""
    assert read("{metadata: {generateName: train-}}").pods[0].owner == "Pod train-"


def test_dates_are_text(read):
    """As the API server has them."""
    pod = read("{metadata: {name: p, labels: {day: 2026-01-02}}}").pods[0].pod
    assert pod["metadata"]["labels"] == {"day": "2026-01-02"}


def test_standard_input(monkeypatch):
    """Named `-`, as for kubectl."""
    monkeypatch.setattr("sys.stdin", io.StringIO("{metadata: {name: p}}"))
    assert read_pods("-", "ml", is_given=False).pods[0].owner == "Pod p"
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    with pytest.raises(CliError) as caught:
        read_pods("-", "ml", is_given=False)
    assert str(caught.value) == "standard input is empty, expected a manifest"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# nothing", "file f.yaml is empty, expected a manifest"),
        ("{kind: List, items: []}", "file f.yaml is an empty list, expected a manifest"),
        ("a: [", "file f.yaml cannot be read: line 1, column 5: expected the node content"),
        ("text", "file f.yaml cannot be read: a document is 'text', expected an object"),
        ("{metadata: 1}", "file f.yaml cannot be read: metadata is 1, expected an object"),
        ("{kind: Job}", "file f.yaml: Job: spec.template of the Job is missing, expected a pod"),
        (
            "{kind: Service, metadata: {name: s}}",
            "file f.yaml: Service s: kind is 'Service', expected Pod, CronJob,",
        ),
        ("{metadata: {name: p, labels: {2026-01-02: x}}}", "file f.yaml: Pod p: keys must be str"),
    ],
)
def test_what_cannot_be_read(read, text, message):
    """One sentence that names the file and the object."""
    assert fault(read, text).startswith(message)


def test_a_file_that_is_not_there():
    """As the system says."""
    with pytest.raises(CliError) as caught:
        read_pods("nowhere.yaml", "ml", is_given=False)
    assert str(caught.value) == ("file nowhere.yaml cannot be read: no such file or directory")


def test_another_namespace_than_the_option(read):
    """As kubectl refuses it; the context's namespace is no such wish."""
    text = "{metadata: {name: p, namespace: own}}"
    assert fault(read, text, is_given=True).endswith(
        "Pod p is of namespace 'own', and -n is 'ml': give -n own, or leave it out"
    )
    assert read(text, "own", is_given=True).pods[0].pod["metadata"]["namespace"] == "own"


def test_pods_with_devices(read):
    """A GPU is an extended resource, whose name has a domain."""
    spec = "{containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1, cpu: 1}}}]}"
    (one,) = read("{metadata: {name: p}, spec: %s}" % spec).pods  # noqa: UP031 - braces
    assert one.devices == ("nvidia.com/gpu",)


def test_a_spec_that_is_none():
    """The sentence names the manifest."""
    with pytest.raises(CliError) as caught:
        _ = ManifestPod("Pod p", {"spec": 1}, 1).devices
    assert str(caught.value) == "Pod p: spec is 1, expected an object"


VOLCANO = """\
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: v}
spec: {tasks: [{name: w, replicas: 2, template: {spec: {containers: [{name: c}]}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: fine}
spec: {containers: [{name: c}]}
"""


def test_a_kind_of_another_api_group_is_left_out(read):
    """It fails no file."""
    found = read(VOLCANO)
    assert [one.owner for one in found.pods] == ["Pod fine"]
    assert found.left_out == ["Job v is left out: no pods of its kind are known."]


PINNED = """\
kind: Pod
metadata: {name: fine}
spec: {nodeName: n1, containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}
"""
REASON = "spec.nodeName is 'n1': no scheduler places it, and that node's kubelet chooses its GPUs"


def test_a_pod_that_names_its_node_is_left_out(read):
    """No scheduler sees it, and so does no extender; alone it is refused."""
    assert fault(read, PINNED) == f"Pod fine: {REASON}"
    both = read(f"{PINNED}---\nkind: Pod\nmetadata: {{name: free}}\nspec: {{containers: []}}\n")
    assert [one.owner for one in both.pods] == ["Pod free"]
    assert both.left_out == [f"Pod fine is left out: {REASON}."]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(PINNED.replace("name: fine", "name: fine, uid: u"), id="a scheduler wrote it"),
        pytest.param(PINNED.replace("nvidia.com/gpu: 1", "cpu: 1"), id="without GPUs"),
    ],
)
def test_a_pod_that_has_a_node_for_another_reason_is_read(read, text):
    """As `kubectl get pod -o yaml` prints it; what requests no GPU is said to."""
    assert [one.owner for one in read(text).pods] == ["Pod fine"]


def test_a_document_that_is_of_no_kind_fails_no_file(read):
    """Grafana's provisioning files have a number as apiVersion."""
    found = read(f"{VOLCANO}---\napiVersion: 1\nkind: Foo\n---\nkind: [1]\n")
    assert [one.owner for one in found.pods] == ["Pod fine"]
    assert found.left_out[1] == "Foo is left out: no pods of its kind are known."
    assert fault(read, PINNED.replace("n1", "5")).endswith("nodeName is 5, expected a string")
