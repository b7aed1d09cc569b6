"""Calls that may be for a member of a group are found by their bytes."""

from __future__ import annotations

import json

import pytest

from extender.protocol import may_be_member
from tests.unit.extender.pods import args, pod


def managed(*fields: str) -> dict[str, object]:
    """A pod that names fields in its metadata, as the API server writes them."""
    content = pod(1)
    names: dict[str, object] = {f"f:{name}": {} for name in fields}
    content["metadata"]["managedFields"] = [{"fieldsV1": {"f:annotations": names}}]
    return content


def applied() -> dict[str, object]:
    """A pod whose last applied form is in an annotation."""
    content = pod(1)
    text = json.dumps({"coterie.gpu/group-size": "2"})
    content["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = text
    return content


@pytest.mark.parametrize(
    ("body", "is_one"),
    [
        pytest.param(args(pod(1, group="g", group_size="2"), ["n"]), True, id="a member"),
        pytest.param(args(pod(1, group="g"), ["n"]), False, id="a group without size"),
        pytest.param(args(pod(1), ["n"]), False, id="no group"),
        pytest.param(args(managed("coterie.gpu/group-size"), ["n"]), False, id="a managed field"),
        pytest.param(args(applied(), ["n"]), False, id="the text of an annotation"),
        pytest.param(b'{"Pod":{"coterie.gpu/group-size":"2"}}', True, id="no names behind it"),
        pytest.param(b'{"NodeNames":["coterie.gpu/group-size"]}', False, id="a node's name"),
        pytest.param(b"", False, id="nothing"),
    ],
)
def test_a_member_is_found_by_its_annotation(body, is_one):
    """A wrong yes would only forward the call."""
    assert may_be_member(body) is is_one


def test_other_keys_may_mark_a_member():
    """Those of kinds that a setting names."""
    body = args(pod(1) | {"metadata": {"labels": {"kueue.x-k8s.io/pod-group-name": "g"}}}, ["n"])
    assert may_be_member(body, ("x", "kueue.x-k8s.io/pod-group-name"))
    assert not may_be_member(body)
