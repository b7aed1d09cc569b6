"""Pods remembered between filter and bind."""

from __future__ import annotations

import json

from extender.protocol import PodRequest, RecentPods, messages, parse_pod
from tests.unit.extender.pods import GPU, pod


def request(uid: str) -> PodRequest:
    """A pod's request."""
    content = json.dumps(pod(1, uid=uid)).encode()
    return parse_pod(messages.decode(messages.WirePod, content), (GPU,))


def test_only_so_many_pods_are_remembered():
    """Pods that are filtered and never bound must not fill the memory."""
    recent = RecentPods(max_pods=2)
    for uid in ("u1", "u2", "u1", "u3"):
        recent.remember(request(uid))
    found = [recent.recall(uid, request(uid).full_name) for uid in ("u1", "u2", "u3")]
    assert found == [request("u1"), None, request("u3")]


def test_a_pod_is_recalled_by_its_uid_and_name():
    """A uid alone may be another pod's, by fault or on purpose."""
    recent = RecentPods()
    recent.remember(request("u1"))
    assert recent.recall("u1", "default/other") is None
    assert recent.recall("u1", request("u1").full_name) == request("u1")
    recent.forget("u1")
    assert recent.recall("u1", request("u1").full_name) is None
