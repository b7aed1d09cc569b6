"""Manifests of embedded pods, written from their requests."""

from __future__ import annotations

import json

from extender.embedded.known_pods import write_pod
from extender.protocol import WirePod, decode, parse_pod
from extender.state import BoundPod
from topology.model import DEFAULT_RESOURCE, names
from topology.node_affinity import ANY_NODE


def read(pod):
    """The request of a manifest."""
    return parse_pod(decode(WirePod, json.dumps(pod).encode()), (DEFAULT_RESOURCE,))


def test_the_request_that_is_read_is_the_one_that_was_written():
    """Containers of each role and every annotation."""
    limits = {"resources": {"limits": {DEFAULT_RESOURCE: "2"}}}
    spec = {
        "initContainers": [
            {"name": "load", **limits},
            {"name": "beside", "restartPolicy": "Always", **limits},
        ],
        "containers": [{"name": "main", **limits}],
    }
    annotations = {
        "coterie.gpu/affinity": "numa",
        "coterie.gpu/policy": "required",
        "coterie.gpu/min-bandwidth": "12.5",
        "coterie.gpu/prefer": "fastest",
        "coterie.gpu/nic": "preferred",
    }
    meta = {"namespace": "ml", "name": "train", "uid": "u1"}
    request = read({"metadata": meta | {"annotations": annotations}, "spec": spec})
    written = write_pod(request, None)
    assert written == {"metadata": meta | {"annotations": annotations}, "spec": spec}
    assert read(written) == request


def test_what_it_requires_of_its_node_is_written_too():
    """Else an explanation would count nodes that kube-scheduler excludes."""
    expressions = [{"key": "a", "operator": "Exists", "values": []}]
    fields = [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]
    terms = [
        {"matchExpressions": expressions, "matchFields": fields},
        {"matchExpressions": [], "matchFields": fields},
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    rules = {"nodeSelector": {"b": "1"}, "affinity": {"nodeAffinity": required}}
    container = {"name": "main", "resources": {"limits": {DEFAULT_RESOURCE: "2"}}}
    spec = {"initContainers": [], "containers": [container], **rules}
    request = read({"metadata": {"uid": "u1"}, "spec": spec})
    assert request.node_affinity != ANY_NODE
    written = write_pod(request, None)
    assert written["spec"] == spec
    assert read(written).node_affinity == request.node_affinity


def test_a_bound_pod_has_its_node_and_its_plan():
    """And a pod without GPUs no container."""
    meta = {"namespace": "ml", "name": "train", "uid": "u1"}
    request = read({"metadata": meta, "spec": {}})
    bound = BoundPod("u1", "ml", "train", "n1", "a plan")
    pod = {"metadata": meta | {"annotations": {names.PLAN: "a plan"}}, "spec": {"nodeName": "n1"}}
    assert write_pod(request, bound) == pod
    unplanned = BoundPod("u1", "ml", "train", "n1", None)
    assert write_pod(request, unplanned)["metadata"] == meta | {"annotations": {}}
