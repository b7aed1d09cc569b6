"""The requests beside the watches: what is sent, and what comes back."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from kube.client import JSON, METADATA, ApiServer, Binding, ObjectEvent
from kube.client.server import MAX_EVENT_MESSAGE
from kube.client.transport import MERGE_PATCH
from kube.errors import Conflict, KubeError, Malformed, NotFound, refusal
from kube.objects import ObjectKey
from tests.unit.kube.requesters import ScriptedRequester, item, page

POD = ObjectKey("team a", "p/1", "u1")
POD_PATH = "/api/v1/namespaces/team%20a/pods/p%2F1"
ABSENT = refusal(404, "NotFound", b"")
CONFLICT = refusal(409, "Conflict", b"")


class Sent:
    """What one call sent, what it returned or raised."""

    def __init__(self, call, *answers):
        self.requester = ScriptedRequester(*answers)
        self.value = asyncio.run(call(ApiServer(self.requester, timeout_s=10.0)))
        self.request = self.requester.requests[0]
        self.body: Any = self.request.body


def body(content):
    """An answer."""
    return json.dumps(content).encode()


def pod(**meta):
    """A pod of the API."""
    known = {"namespace": "ns", "name": "p", "uid": "u", "resourceVersion": "7"}
    return {"metadata": known | meta}


def test_a_binding_carries_its_preconditions_and_annotations():
    """One write binds the pod, writes its plan and checks that it is the pod that was planned."""
    binding = Binding(POD, "7", "n1", {"coterie.gpu/plan": "{}"})
    sent = Sent(lambda api: api.bind(binding, timeout_s=2.5), b"{}")
    request = sent.request
    assert (request.method, request.path) == ("POST", f"{POD_PATH}/binding")
    assert (request.timeout_s, request.content_type) == (2.5, JSON)
    assert sent.body == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "namespace": "team a",
            "name": "p/1",
            "uid": "u1",
            "resourceVersion": "7",
            "annotations": {"coterie.gpu/plan": "{}"},
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }
    assert sent.value is None


def test_a_binding_without_preconditions_has_none():
    """An empty uid sent as such would match no pod."""
    sent = Sent(lambda api: api.bind(Binding(ObjectKey("ns", "p", ""), "", "n1", {})), b"{}")
    assert sent.body["metadata"] == {"namespace": "ns", "name": "p", "annotations": {}}
    assert sent.request.timeout_s == 10.0


def test_a_binding_that_is_refused_is_reported():
    """The caller decides what a conflict means."""
    with pytest.raises(Conflict):
        Sent(lambda api: api.bind(Binding(POD, "7", "n1", {})), CONFLICT)


@pytest.mark.parametrize(
    ("call", "path"),
    [
        (lambda api: api.get_pod("team a", "p/1"), POD_PATH),
        (lambda api: api.get_allocatable("n/1"), "/api/v1/nodes/n%2F1"),
    ],
)
def test_what_is_not_there_is_none(call, path):
    """Absence is an answer; every other refusal is an error."""
    sent = Sent(call, ABSENT)
    assert (sent.value, sent.request.method, sent.request.path) == (None, "GET", path)
    with pytest.raises(Conflict):
        Sent(call, CONFLICT)


@pytest.mark.parametrize("answer", [b"{", b"[]", b"{}", b'{"metadata":7}'])
def test_an_answer_that_is_not_the_object_is_malformed(answer):
    """A proxy may answer 200 with anything."""
    with pytest.raises(Malformed):
        Sent(lambda api: api.get_pod("ns", "p"), answer)


def test_objects_are_read_into_values():
    """As they are now, whatever the watches know."""
    sent = Sent(lambda api: api.get_pod("ns", "p", timeout_s=1.0), body(pod()))
    assert (sent.value.uid, sent.request.timeout_s) == ("u", 1.0)
    allocatable = Sent(
        lambda api: api.get_allocatable("n1"), body({"status": {"allocatable": {"cpu": "2"}}})
    )
    assert (allocatable.value, allocatable.request.path) == ({"cpu": 2}, "/api/v1/nodes/n1")


def test_pods_of_a_node_are_read_page_by_page():
    """A node may have more pods than one page."""
    sent = Sent(
        lambda api: api.list_pods_on("n1"),
        page(pod(name="a"), is_last=False),
        page(pod(name="b")),
    )
    assert [one.name for one in sent.value] == ["a", "b"]
    selector = {"fieldSelector": "spec.nodeName=n1", "limit": "250"}
    assert [one.query for one in sent.requester.requests] == [
        selector,
        selector | {"continue": "next"},
    ]


def test_budgets_are_read():
    """Of all namespaces: a victim may be anywhere."""
    sent = Sent(lambda api: api.list_pdbs(), page(item("few")))
    assert sent.request.path == "/apis/policy/v1/poddisruptionbudgets"
    assert [one.name for one in sent.value] == ["few"]


def test_an_annotation_is_a_patch_of_this_very_pod():
    """The uid is in the patch, so that a pod of the same name is left alone."""
    sent = Sent(
        lambda api: api.annotate_pod("team a", "p/1", "u1", {"a": "b", "c": None}),
        body(pod(resourceVersion="9")),
    )
    request = sent.request
    assert (request.method, request.path) == ("PATCH", POD_PATH)
    assert (request.content_type, request.accept) == (MERGE_PATCH, METADATA)
    assert sent.body == {"metadata": {"uid": "u1", "annotations": {"a": "b", "c": None}}}
    assert sent.value == "9"


@pytest.mark.parametrize(
    ("status", "causes", "kind"),
    [
        (404, [], NotFound),
        (422, [{"field": "metadata.uid"}], NotFound),
        (422, [{"field": "metadata.annotations"}], KubeError),
    ],
)
def test_a_pod_of_another_uid_is_not_the_pod(status, causes, kind):
    """The API server calls it an attempt to change the uid."""
    refused = refusal(status, "", body({"details": {"causes": causes}}))
    with pytest.raises(kind) as caught:
        Sent(lambda api: api.annotate_pod("ns", "p", "u1", {}), refused)
    assert type(caught.value) is kind


def test_annotations_of_a_node_are_a_patch_that_shows_all_of_them():
    """Who may patch a Node need not be allowed to read it."""
    after = {"a": "b", "of": "others"}
    sent = Sent(
        lambda api: api.annotate_node("n/1", {"a": "b", "c": None}, timeout_s=2.5),
        body({"metadata": {"name": "n/1", "annotations": after}}),
    )
    request = sent.request
    assert (request.method, request.path) == ("PATCH", "/api/v1/nodes/n%2F1")
    assert (request.content_type, request.accept) == (MERGE_PATCH, METADATA)
    assert request.timeout_s == 2.5
    assert sent.body == {"metadata": {"annotations": {"a": "b", "c": None}}}
    assert sent.value == after
    bare = Sent(lambda api: api.annotate_node("n", {}), body({"metadata": {"name": "n"}}))
    assert (bare.value, bare.body) == ({}, {"metadata": {"annotations": {}}})
    assert bare.request.timeout_s == 10.0


@pytest.mark.parametrize("answer", [ABSENT, CONFLICT, body({"metadata": {"annotations": 7}})])
def test_a_node_that_cannot_be_annotated_is_an_error(answer):
    """There is nothing to return."""
    with pytest.raises(KubeError):
        Sent(lambda api: api.annotate_node("n", {}), answer)


def event(about, message="m", *, is_warning=True, key="4f"):
    """An Event of the extender."""
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    return ObjectEvent(about, is_warning, "NoSet", message, at, "coterie-extender", "host-1", key)


def test_an_event_says_what_kubectl_shows():
    """About whom, what, when, and from whom."""
    sent = Sent(lambda api: api.create_event(event(ObjectKey("ns", "p", "u"))), b"{}")
    assert (sent.request.method, sent.request.path) == ("POST", "/api/v1/namespaces/ns/events")
    assert sent.body == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": "ns", "name": "p.4f"},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "ns",
            "name": "p",
            "uid": "u",
        },
        "type": "Warning",
        "reason": "NoSet",
        "message": "m",
        "firstTimestamp": "2026-01-02T03:04:05Z",
        "lastTimestamp": "2026-01-02T03:04:05Z",
        "count": 1,
        "source": {"component": "coterie-extender"},
        "reportingComponent": "coterie-extender",
        "reportingInstance": "host-1",
    }


def test_an_event_about_a_node_is_in_the_default_namespace():
    """Where kubectl looks for Events of what has no namespace."""
    about = event(ObjectKey("", "n1", "u"), is_warning=False)
    sent = Sent(lambda api: api.create_event(about), b"{}")
    assert sent.request.path == "/api/v1/namespaces/default/events"
    assert sent.body["metadata"]["namespace"] == "default"
    assert sent.body["involvedObject"]["kind"] == "Node"
    assert sent.body["type"] == "Normal"


@pytest.mark.parametrize(
    ("about", "name"),
    [
        ("a" * 253, "a" * 250 + ".4f"),
        ("a" * 249 + ".b.c", "a" * 249 + ".4f"),
    ],
    ids=["cut", "cut behind a dot"],
)
def test_the_name_of_an_event_is_a_name(about, name):
    """Of an object whose name is as long as names may be, too."""
    sent = Sent(lambda api: api.create_event(event(ObjectKey("ns", about, "u"))), b"{}")
    assert sent.body["metadata"]["name"] == name


def test_the_api_server_names_an_event_without_a_key():
    """Where no other program reports the same."""
    sent = Sent(lambda api: api.create_event(event(ObjectKey("ns", "p", "u"), key="")), b"{}")
    assert sent.body["metadata"] == {"namespace": "ns", "generateName": "p."}


def test_a_long_message_is_cut():
    """The API server refuses what is longer."""
    long = event(ObjectKey("ns", "p", "u"), "x" * 5000)
    sent = Sent(lambda api: api.create_event(long), b"{}")
    assert len(sent.body["message"]) == MAX_EVENT_MESSAGE
