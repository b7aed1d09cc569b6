"""What is watched."""

from __future__ import annotations

from kube.objects import NodeFacts, PodFacts, PodObject
from kube.watch import watches
from tests.unit.kube.objects.test_objects import NODE, POD


def test_nodes_are_watched_whole():
    """Allocatable devices are in the status."""
    source = watches.nodes()
    assert (source.path, source.field_selector, source.is_metadata) == ("/api/v1/nodes", "", False)
    assert isinstance(source.read(NODE), NodeFacts)


def test_nodes_are_read_with_the_labels_that_are_named():
    """Of network domains, and those that selectors of pods name."""
    labels = {"rack": "r1", "product": "x", "other": "y"}
    node = {"metadata": {"name": "n1", "uid": "u1", "labels": labels}}
    read = watches.nodes(["rack"], ["product"]).read(node)
    assert (read.domains, read.labels) == ({"rack": "r1"}, {"product": "x"})


def test_assigned_pods_are_watched_as_metadata():
    """Those that have a node and have not ended: one that ends leaves."""
    source = watches.assigned_pods(["nvidia.com/gpu"])
    assert source.is_metadata
    assert source.field_selector == "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
    assert isinstance(source.read(POD), PodFacts)


def test_nominated_pods_are_watched_whole():
    """Few at a time, and their requests are in the spec; a pod may end without a node."""
    source = watches.nominated_pods()
    assert (source.path, source.is_metadata) == ("/api/v1/pods", False)
    terms = (
        "spec.nodeName=",
        "status.nominatedNodeName!=",
        "status.phase!=Succeeded",
        "status.phase!=Failed",
    )
    assert source.field_selector == ",".join(terms)
    assert isinstance(source.read(POD), PodObject)


def test_pending_pods_are_those_of_a_scheduler():
    """Whole; thousands of pods may wait for other schedulers."""
    source = watches.pending_pods("gpu")
    assert (source.name, source.path, source.is_metadata) == ("pending_pods", "/api/v1/pods", False)
    terms = (
        "spec.schedulerName=gpu",
        "spec.nodeName=",
        "status.phase!=Succeeded",
        "status.phase!=Failed",
    )
    assert source.field_selector == ",".join(terms)
    assert isinstance(source.read(POD), PodObject)
    assert watches.pending_pods().field_selector == ",".join(terms[1:])


def test_each_of_several_schedulers_has_a_watch():
    """By a name of its own, whatever the scheduler is called: no API checks it."""
    source = watches.pending_pods("a=b,c\\d", is_one_of_several=True)
    assert source.name == "pending_pods/a=b,c\\d"
    assert source.field_selector.startswith(r"spec.schedulerName=a\=b\,c\\d,spec.nodeName=,")
