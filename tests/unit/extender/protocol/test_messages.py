"""The scheduler's JSON, letter by letter: literals written from Kubernetes' extender/v1 types."""

from __future__ import annotations

import json

import pytest

from extender.errors import WireError
from extender.protocol import messages, responses

FILTER_REQUEST = b"""
{"Pod":{"metadata":{"name":"train-0","namespace":"ml","uid":"8c1d","resourceVersion":"812",
 "creationTimestamp":"2026-11-21T06:00:00Z","annotations":{"coterie.gpu/affinity":"nvlink"}},
 "spec":{"volumes":[{"name":"v"}],
  "initContainers":[{"name":"pull","image":"i","resources":{"limits":{"nvidia.com/gpu":"1"},
    "requests":{"nvidia.com/gpu":"1"}}},
   {"name":"side","image":"i","restartPolicy":"Always","resources":{}}],
  "containers":[{"name":"main","image":"i","resources":{"limits":{"cpu":"8","nvidia.com/gpu":"4"},
    "requests":{"cpu":"8","nvidia.com/gpu":"4"}}}],
  "affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":
    {"nodeSelectorTerms":[{}]}}},
  "tolerations":[{"key":"gpu","operator":"Exists"}],"schedulerName":"gpu-scheduler"},
 "status":{"phase":"Pending","nominatedNodeName":"n2","qosClass":"Burstable"}},
 "Nodes":null,"NodeNames":["n1","n2"]}
"""


def test_a_filter_request_is_read_as_the_scheduler_writes_it():
    """Go's field names outside, API JSON inside, fields that we do not read ignored."""
    args = messages.decode(messages.ExtenderArgs, FILTER_REQUEST)
    assert args.node_names == ["n1", "n2"]
    assert args.nodes is None
    assert args.pod.metadata.name == "train-0"
    assert args.pod.metadata.namespace == "ml"
    assert args.pod.metadata.uid == "8c1d"
    assert args.pod.metadata.resource_version == "812"
    assert args.pod.metadata.annotations == {"coterie.gpu/affinity": "nvlink"}
    assert [c.name for c in args.pod.spec.init_containers or ()] == ["pull", "side"]
    assert [c.restart_policy for c in args.pod.spec.init_containers or ()] == [None, "Always"]
    assert [c.name for c in args.pod.spec.containers or ()] == ["main"]
    assert not args.pod.spec.has_soft_wishes
    assert args.pod.status is not None
    assert args.pod.status.nominated_node_name == "n2"


def test_node_names_may_be_null():
    """Without nodeCacheCapable Go writes null; that differs from an empty list."""
    body = (
        b'{"Pod":{"metadata":{},"spec":{}},"Nodes":{"metadata":{},"items":[{}]},"NodeNames":null}'
    )
    assert messages.decode(messages.ExtenderArgs, body).node_names is None


def test_a_filter_answer_has_every_field_of_the_go_type():
    """An answer without NodeNames would reject every node; Error is always there."""
    body = responses.encode_filter(
        ['"n1"'],
        failed_json=['"n2"' + responses.reason_tail("a")],
        unresolvable_json=['"n3"' + responses.reason_tail('b "quoted"')],
        error="",
    )
    assert body == (
        b'{"Nodes":null,"NodeNames":["n1"],"FailedNodes":{"n2":"a"},'
        b'"FailedAndUnresolvableNodes":{"n3":"b \\"quoted\\""},"Error":""}'
    )


def test_an_error_answer_still_has_lists():
    """Go decodes null as absent; lists are written as lists."""
    body = responses.encode_filter((), error="no")
    assert json.loads(body) == {
        "Nodes": None,
        "NodeNames": [],
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {},
        "Error": "no",
    }


def test_a_prioritize_answer_is_a_bare_array_of_integers():
    """A float score would disable prioritize without a word."""
    entries = [
        responses.score_head(name) + responses.score_tail(score)
        for name, score in (("n1", 10), ("n2", 3))
    ]
    body = responses.encode_prioritize(entries)
    assert body == b'[{"Host":"n1","Score":10},{"Host":"n2","Score":3}]'
    assert responses.encode_prioritize([]) == b"[]"


def test_bind_is_read_and_answered_with_the_go_names():
    """The empty error is success."""
    body = b'{"PodName":"p","PodNamespace":"ns","PodUID":"uid","Node":"n1"}'
    args = messages.decode(messages.BindingArgs, body)
    assert (args.pod_name, args.pod_namespace, args.pod_uid, args.node) == ("p", "ns", "uid", "n1")
    assert responses.encode_bind() == b'{"Error":""}'
    assert responses.encode_bind("no set") == b'{"Error":"no set"}'


@pytest.mark.parametrize(
    ("spec", "is_soft"),
    [
        pytest.param({}, False, id="nothing"),
        pytest.param({"affinity": {}}, False, id="empty affinity"),
        pytest.param(
            {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}},
            False,
            id="required terms only",
        ),
        pytest.param(
            {
                "affinity": {
                    "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}
                }
            },
            False,
            id="an empty list of preferred terms",
        ),
        *(
            pytest.param(
                {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}}},
                True,
                id=f"preferred {kind}",
            )
            for kind in ("nodeAffinity", "podAffinity", "podAntiAffinity")
        ),
        pytest.param(
            {"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]},
            True,
            id="soft spread",
        ),
        pytest.param(
            {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]},
            False,
            id="hard spread",
        ),
    ],
)
def test_soft_wishes_are_seen(spec, is_soft):
    """The scheduler weighs nodes by them, so no node may be left out."""
    assert messages.decode(messages.PodSpec, json.dumps(spec).encode()).has_soft_wishes is is_soft


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b'{"Pod":', id="broken JSON"),
        pytest.param(b"\xff\xfe", id="no text at all"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b"{}", id="no pod"),
        pytest.param(b'{"Pod":{"metadata":{}}}', id="no spec"),
        pytest.param(
            b'{"Pod":{"metadata":{},"spec":{"containers":[{}]}}}', id="a container without a name"
        ),
        pytest.param(b'{"Pod":5}', id="a number for a pod"),
        pytest.param(
            b'{"Pod":{"metadata":{"annotations":[]},"spec":{}}}', id="a list of annotations"
        ),
        pytest.param(b'{"Pod":{"metadata":{"name":5},"spec":{}}}', id="a number for a name"),
        pytest.param(
            b'{"Pod":{"metadata":{},"spec":{}},"NodeNames":["n1",true]}',
            id="a truth value for a node name",
        ),
        pytest.param(
            b'{"Pod":{"metadata":{"annotations":{"a":1}},"spec":{}}}',
            id="a number for an annotation",
        ),
        pytest.param(
            b'{"Pod":{"metadata":{},"spec":{"containers":[{"name":"c","resources":{"limits":'
            b'{"g":true}}}]}}}',
            id="a truth value for a quantity",
        ),
    ],
)
def test_other_bodies_are_refused_by_field_value_and_expectation(body, check_message):
    """Whoever sent it must be able to find the fault."""
    with pytest.raises(WireError) as caught:
        messages.decode(messages.ExtenderArgs, body)
    check_message(caught.value)


def test_a_megabyte_of_garbage_makes_a_short_message():
    """Foreign text is cut; a log line must not grow with the attack."""
    long = "k" * 1_000_000
    pod = {"metadata": {"annotations": {long: 5}}, "spec": {}}
    for body in (b"{" * 1_000_000, long.encode(), json.dumps({"Pod": pod}).encode()):
        with pytest.raises(WireError) as caught:
            messages.decode(messages.ExtenderArgs, body)
        assert len(str(caught.value)) < 300


def test_bind_names_the_field_that_is_missing(check_message):
    """By its name on the wire."""
    with pytest.raises(WireError) as caught:
        messages.decode(messages.BindingArgs, b'{"PodName":"p","PodNamespace":"d","Node":"n"}')
    check_message(caught.value)


@pytest.mark.parametrize("key", ["PodUID", "Node"])
def test_bind_without_a_uid_or_a_node_is_refused(key):
    """Nothing could be bound, and an empty uid would match anything."""
    content = {"PodName": "p", "PodNamespace": "d", "PodUID": "u", "Node": "n"} | {key: ""}
    with pytest.raises(WireError, match=f"request {key} is '', expected at least 1 character"):
        messages.decode(messages.BindingArgs, json.dumps(content).encode())


PREEMPT_REQUEST = b"""
{"Pod":{"metadata":{"name":"train-0","uid":"8c1d"},"spec":{"priority":1000,"containers":[]}},
 "NodeNameToVictims":null,
 "NodeNameToMetaVictims":{
  "n1":{"Pods":[{"UID":"u2"},{"UID":"u1"}],"NumPDBViolations":1},
  "n2":{"Pods":[],"NumPDBViolations":0},
  "n3":{"Pods":null,"NumPDBViolations":0},
  "n4":null}}
"""


def test_a_preempt_request_is_read_as_the_scheduler_writes_it():
    """Go writes nil slices and pointers as null; a list may be empty from 1.38 on."""
    args = messages.decode(messages.PreemptionArgs, PREEMPT_REQUEST)
    assert args.pod.spec.priority == 1000
    found = {name: (one.uids, one.n_pdb_violations) for name, one in args.victims.items()}
    assert found == {"n1": (("u2", "u1"), 1), "n2": ((), 0), "n3": ((), 0), "n4": ((), 0)}


def test_victims_may_come_as_whole_pods():
    """The form without nodeCacheCapable; the other map is null."""
    pod = {"metadata": {"uid": "u1"}, "spec": {"priority": 5}}
    victims = {"n1": {"Pods": [pod], "NumPDBViolations": 2}}
    body = {"Pod": pod, "NodeNameToVictims": victims, "NodeNameToMetaVictims": None}
    (found,) = messages.decode(messages.PreemptionArgs, json.dumps(body).encode()).victims.values()
    assert (found.uids, found.n_pdb_violations) == (("u1",), 2)


def test_without_victims_there_are_no_nodes():
    """Both maps null: kube-scheduler has no candidate, and calls no extender."""
    body = b'{"Pod":{"metadata":{},"spec":{}},"NodeNameToMetaVictims":null}'
    assert messages.decode(messages.PreemptionArgs, body).victims == {}


def test_a_preempt_answer_is_in_the_meta_form():
    """The only one that kube-scheduler reads; keys are Go's names."""
    body = responses.encode_preempt({"n1": (("u2", "u1"), 1), 'n"2': ((), 0)})
    assert body == (
        b'{"NodeNameToMetaVictims":{"n1":{"Pods":[{"UID":"u2"},{"UID":"u1"}],'
        b'"NumPDBViolations":1},"n\\"2":{"Pods":[],"NumPDBViolations":0}}}'
    )
    assert responses.encode_preempt({}) == b'{"NodeNameToMetaVictims":{}}'


@pytest.mark.parametrize(
    ("victims", "says"),
    [
        ({"n1": {"Pods": [{}]}}, "n1.Pods.0.UID is missing, expected a string"),
        ({"n1": {"Pods": [{"UID": ""}]}}, "n1.Pods.0.UID is '', expected at least 1 character"),
        ({"n1": {"NumPDBViolations": "1"}}, "n1.NumPDBViolations is '1', expected"),
    ],
    ids=["no uid", "an empty uid", "a count that is a text"],
)
def test_a_preempt_request_with_a_fault_is_refused(victims, says):
    """A victim without a uid could be any pod."""
    body = {"Pod": {"metadata": {}, "spec": {}}, "NodeNameToMetaVictims": victims}
    with pytest.raises(WireError) as caught:
        messages.decode(messages.PreemptionArgs, json.dumps(body).encode())
    assert f"request NodeNameToMetaVictims.{says}" in str(caught.value)
