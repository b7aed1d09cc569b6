"""The device manager's checkpoint: its form, and the pods that it names by uid."""

from __future__ import annotations

import json

import pytest

from plugin.errors import CheckpointError
from plugin.pods import HeldDevices, NodePod, as_holdings, match_holdings, read_checkpoint
from plugin.pods.checkpoint import CheckpointEntry

GPU = "nvidia.com/gpu"


def entry(uid="u1", container="main", ids=None, **more):
    """An entry as the kubelet writes it."""
    return {
        "PodUID": uid,
        "ContainerName": container,
        "ResourceName": GPU,
        "DeviceIDs": {"0": ["GPU-0"]} if ids is None else ids,
        "AllocResp": "CgwKA0ZPTxIFYmFyPT0=",
    } | more


def body(*entries):
    """The file's content."""
    data = {"PodDeviceEntries": entries or None, "RegisteredDevices": {GPU: ["GPU-0", "GPU-1"]}}
    return json.dumps({"Data": data, "Checksum": 1820465395}).encode()


def pod(uid, name):
    """A pod of the node, as far as it matters here."""
    return NodePod(
        uid=uid,
        namespace="ns",
        name=name,
        phase="Running",
        is_deleting=False,
        is_started=True,
        annotations={},
        containers=(),
    )


@pytest.mark.parametrize(
    ("ids", "found"),
    [
        pytest.param({"0": ["GPU-1", "GPU-0"]}, ("GPU-0", "GPU-1"), id="one NUMA node"),
        pytest.param({"1": ["b"], "0": ["c", "a"]}, ("a", "b", "c"), id="several"),
        pytest.param({"0": ["a"], "1": ["a"]}, ("a",), id="a device near both"),
        pytest.param({"-1": ["a"]}, ("a",), id="a device near none"),
        pytest.param({"0": None, "1": ["a"]}, ("a",), id="null"),
    ],
)
def test_ids_are_gathered_over_numa_nodes(ids, found):
    """Sorted, each once."""
    assert read_checkpoint(body(entry(ids=ids))) == (CheckpointEntry("u1", "main", GPU, found),)


def test_entries_stay_in_order_and_none_is_no_entry():
    """Go writes an empty list as null."""
    found = read_checkpoint(body(entry("u2"), entry("u1", "init")))
    assert [(one.uid, one.container) for one in found] == [("u2", "main"), ("u1", "init")]
    assert read_checkpoint(body()) == ()


def test_entries_get_the_names_of_their_pods():
    """Those of pods that are gone belong to no pod."""
    entries = read_checkpoint(body(entry("u1"), entry("gone"), entry("u2", "init")))
    assert as_holdings(entries, [pod("u2", "b"), pod("u1", "a"), pod("u3", "c")]) == (
        HeldDevices("ns", "a", "main", GPU, ("GPU-0",), "u1"),
        HeldDevices("ns", "b", "init", GPU, ("GPU-0",), "u2"),
    )


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{", id="cut"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b"{}", id="no data"),
        pytest.param(b'{"Data":7}', id="data"),
        pytest.param(b'{"Data":{"PodDeviceEntries":{}}}', id="entries"),
        pytest.param(body(entry(uid="")), id="no uid"),
        pytest.param(body(entry(ContainerName=7)), id="container"),
        pytest.param(body(entry(ResourceName=None)), id="no resource"),
        pytest.param(body(entry(ids=["GPU-0"])), id="the form before 1.20"),
        pytest.param(body(entry(ids={})), id="no ids"),
        pytest.param(body(entry(ids={"0": [7]})), id="id"),
        pytest.param(body(entry(ids={"0": [""]})), id="empty id"),
    ],
)
def test_another_form_is_refused(content, check_message):
    """Read wrongly, devices in use would look free."""
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(content)
    check_message(caught.value)


def test_without_a_pod_list_holdings_name_the_pods_of_entries():
    """Those of init containers too, which PodResources leaves out; those of gone pods do not."""
    entries = (
        CheckpointEntry("u1", "init", GPU, ("GPU-0", "GPU-1")),
        CheckpointEntry("u1", "main", GPU, ("GPU-0",)),
        CheckpointEntry("u2", "main", GPU, ("GPU-2",)),
        CheckpointEntry("u3", "main", "other/nic", ("GPU-0",)),
    )
    listed = (HeldDevices("ns", "a", "main", GPU, ("GPU-0",)),)
    assert match_holdings(entries, listed) == (
        HeldDevices("ns", "a", "init", GPU, ("GPU-0", "GPU-1"), "u1"),
        HeldDevices("ns", "a", "main", GPU, ("GPU-0",), "u1"),
    )
