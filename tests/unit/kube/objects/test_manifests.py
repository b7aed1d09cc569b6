"""Which pod a manifest creates."""

from __future__ import annotations

from typing import Any

import pytest

from kube.errors import Unreadable
from kube.objects import TEMPLATES, pod_count, pod_of

ANNOTATED: dict[str, Any] = {"annotations": {"coterie.gpu/affinity": "nvlink"}}
SPEC: dict[str, Any] = {"containers": [{"name": "c"}]}


def controller(kind: str, template: object, **metadata: object) -> dict[str, object]:
    """A controller with a template."""
    content: object = template
    for key in reversed(TEMPLATES[kind].split(".")):
        content = {key: content}
    assert isinstance(content, dict)
    return {"kind": kind, "metadata": {"name": "train", **metadata}, **content}


@pytest.mark.parametrize("kind", TEMPLATES)
def test_the_pod_of_a_controller_is_its_template(kind):
    """With the controller's namespace, and its name where the template has none."""
    manifest = controller(kind, {"metadata": ANNOTATED, "spec": SPEC}, namespace="ml")
    expected = {"metadata": {"namespace": "ml", "name": "train", **ANNOTATED}, "spec": SPEC}
    assert pod_of(manifest) == expected


@pytest.mark.parametrize(
    ("manifest", "metadata"),
    [
        pytest.param(
            {"kind": "Pod", "metadata": {"name": "p"}},
            {"name": "p", "namespace": "default"},
            id="a pod is in default, as for kubectl",
        ),
        pytest.param(
            {"metadata": {"namespace": "ml"}}, {"namespace": "ml"}, id="a bare pod template"
        ),
        pytest.param(
            controller("Job", {"spec": SPEC}),
            {"namespace": "default", "name": "train"},
            id="a template without metadata",
        ),
    ],
)
def test_the_pod_has_a_namespace(manifest, metadata):
    """As the API server would give it."""
    pod = pod_of(manifest)
    assert isinstance(pod, dict)
    assert pod["metadata"] == metadata


@pytest.mark.parametrize("manifest", [None, [], "text", {}, {"metadata": 1}])
def test_what_is_no_manifest_is_left_to_the_reader_of_pods(manifest):
    """It says what is missing."""
    assert pod_of(manifest) == manifest


@pytest.mark.parametrize("kind", ["Job", "CronJob"])
def test_an_annotation_beside_the_template_is_refused(kind):
    """The API server accepts it, and no pod ever has it."""
    with pytest.raises(Unreadable) as caught:
        pod_of(controller(kind, {"spec": SPEC}, **ANNOTATED))
    assert str(caught.value) == (
        f"annotation 'coterie.gpu/affinity' is in the metadata of the {kind} and has no effect "
        f"there, expected in {TEMPLATES[kind]}.metadata.annotations"
    )


def test_an_annotation_in_both_places_is_accepted():
    """As tools write that copy annotations; the template's counts."""
    pod = pod_of(controller("Job", {"metadata": ANNOTATED, "spec": SPEC}, **ANNOTATED))
    assert isinstance(pod, dict)
    assert pod["metadata"]["annotations"] == ANNOTATED["annotations"]


@pytest.mark.parametrize(
    "manifest",
    [
        {"kind": "Job"},
        {"kind": "Job", "spec": []},
        {"kind": 7},
        {"kind": "PyTorchJob"},
    ],
)
def test_other_manifests_are_refused(manifest, check_message):
    """In one sentence."""
    with pytest.raises(Unreadable) as caught:
        pod_of(manifest)
    check_message(caught.value)


@pytest.mark.parametrize(
    ("kind", "spec", "expected"),
    [
        pytest.param("Pod", {}, 1, id="a pod"),
        pytest.param("Deployment", {}, 1, id="one replica by default"),
        pytest.param("Deployment", {"replicas": 0}, 0, id="scaled to nothing"),
        pytest.param("StatefulSet", {"replicas": 3}, 3, id="replicas"),
        pytest.param("Job", {}, 1, id="a job runs one"),
        pytest.param("Job", {"parallelism": 4}, 4, id="parallelism"),
        pytest.param("Job", {"parallelism": 4, "completions": 2}, 2, id="no more than completions"),
        pytest.param("Job", {"completions": 9}, 1, id="completions alone run one by one"),
        pytest.param("DaemonSet", {}, None, id="one on each node"),
        pytest.param("RayCluster", {}, 1, id="another project's"),
    ],
)
def test_pods_at_a_time(kind, spec, expected):
    """By the defaults of the API server."""
    assert pod_count({"kind": kind, "spec": spec}) == expected


def test_pods_at_a_time_of_a_schedule(check_message):
    """Those of its job; what is no manifest is one pod, and a wrong number is refused."""
    job = {"jobTemplate": {"spec": {"parallelism": 3}}}
    assert pod_count({"kind": "CronJob", "spec": job}) == 3
    assert pod_count([]) == 1
    with pytest.raises(Unreadable) as caught:
        pod_count({"kind": "Deployment", "spec": {"replicas": "x"}})
    check_message(caught.value)
