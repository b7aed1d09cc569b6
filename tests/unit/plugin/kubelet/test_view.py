"""One look at the kubelet: both questions in their order, and what is left when one fails."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from kube.errors import Unreachable
from plugin.errors import KubeletError
from plugin.kubelet import KubeletSnapshot, KubeletView, StillHeld
from plugin.kubelet.pod_resources import PodDevices
from plugin.kubelet.view import PODS_S
from tests.unit.plugin.node_values import GPU, holding, node_pod
from tests.virtual_time import run_at_once

POD = node_pod("a")
PODS = json.dumps(
    {
        "kind": "PodList",
        "items": [
            {
                "metadata": {"uid": "uid-a", "namespace": "default", "name": "a"},
                "status": {"phase": "Pending"},
            }
        ],
    }
).encode()
DEVICES = PodDevices(frozenset({("default", "a")}), (holding(POD, "main", "x", has_uid=False),))
NOWHERE = Path("/nonexistent/checkpoint")
NO_ROUTE = Unreachable(0, "Unreachable", "no route")
NO_SOCKET = KubeletError("PodResources at /x: UNAVAILABLE")


class Kubelet:
    """Answers each question; an error is raised, None never answered."""

    def __init__(self, pods, devices):
        self.answers = {"pods": pods, "devices": devices}
        self.calls = []
        self.timeout_s = None

    async def _answer(self, which) -> Any:
        self.calls.append(which)
        answer = self.answers[which]
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            await asyncio.Event().wait()
        return answer

    async def pods(self, *, timeout_s=None):
        """The list."""
        self.timeout_s = timeout_s
        return await self._answer("pods")

    async def read(self):
        """Who has what."""
        return await self._answer("devices")

    async def read_pod(self, namespace, name):
        """What that pod has."""
        return await self._answer(f"{namespace}/{name}")

    async def read_allocatable(self):
        """What can be allocated."""
        return await self._answer("allocatable")


def snapshot(pods, devices):
    """What a look returns, or its error."""

    async def go():
        kubelet = Kubelet(pods, devices)
        found = await KubeletView(kubelet, kubelet, NOWHERE).snapshot()
        assert kubelet.timeout_s == PODS_S
        assert kubelet.calls == ["pods", "devices"]
        return found

    return asyncio.run(go())


def test_devices_are_read_after_the_pods():
    """They name pods by name alone: a newer pod of that name must not get an older one's."""
    assert snapshot(PODS, DEVICES) == KubeletSnapshot((POD,), DEVICES, (), number=1)


def in_call(kubelet, read, within_s=0.8):
    """What a call that has so long gets to know, and how long that took."""

    async def go():
        clock = asyncio.get_running_loop().time
        begun_s = clock()
        view = KubeletView(kubelet, kubelet, NOWHERE)
        return await read(view, begun_s + within_s), clock() - begun_s

    return run_at_once(go())


def test_devices_that_do_not_come_in_time_cost_the_pods_nothing():
    """The kubelet waits for us meanwhile."""
    kubelet = Kubelet(PODS, None)
    found, took_s = in_call(kubelet, lambda view, until_s: view.snapshot(until_s=until_s))
    unread = f"checkpoint {NOWHERE}: deadline exceeded"
    error = f"PodResources: deadline exceeded; {unread}"
    assert found == KubeletSnapshot((POD,), None, None, error, 1)
    assert (kubelet.timeout_s, took_s) == (pytest.approx(0.8), pytest.approx(0.8))


def test_pods_are_not_read_for_longer_than_a_call_has():
    """What is left of it, however little."""
    kubelet = Kubelet(PODS, DEVICES)
    in_call(kubelet, lambda view, until_s: view.snapshot(until_s=until_s), within_s=0.1)
    assert kubelet.timeout_s == pytest.approx(0.1)
    kubelet.calls.clear()
    for over_s in (0.0, -1.0):
        found, took_s = in_call(
            kubelet, lambda view, until_s: view.snapshot(until_s=until_s), within_s=over_s
        )
        assert found.error == "the kubelet's pods cannot be read: deadline exceeded"
        assert (kubelet.calls, took_s) == ([], 0.0)


def test_without_devices_the_pods_are_still_returned():
    """Plans stand on pods: they are the better half."""
    assert snapshot(PODS, NO_SOCKET) == KubeletSnapshot((POD,), None, (), str(NO_SOCKET), 1)


NO_PODS = [
    pytest.param(NO_ROUTE, "the kubelet's pods cannot be read: .*no route", id="not reached"),
    pytest.param(b"{}", "kubelet's pods: kind is ''", id="another answer"),
]


@pytest.mark.parametrize(("pods", "message"), NO_PODS)
def test_without_pods_what_was_given_is_read_all_the_same(tmp_path, pods, message):
    """PodResources names the pods, the record has their uids."""
    noted = holding(POD, "main", "GPU-0", has_uid=False)
    devices = PodDevices(frozenset({("default", "a")}), (noted,))
    kubelet = Kubelet(pods, devices)
    record(tmp_path / "checkpoint", **{"uid-a": "GPU-0", "uid-gone": "GPU-1"})
    found = asyncio.run(KubeletView(kubelet, kubelet, tmp_path / "checkpoint").snapshot())
    assert (found.pods, found.devices) == (None, devices)
    assert found.recorded == (holding(POD, "main", "GPU-0"),)
    assert found.has_holdings
    assert re.match(message, found.error)


@pytest.mark.parametrize(("pods", "message"), NO_PODS)
def test_without_pods_a_call_waits_for_nothing_else(pods, message):
    """Devices do not show which pod a call is for."""
    kubelet = Kubelet(pods, DEVICES)
    found, _ = in_call(kubelet, lambda view, until_s: view.snapshot(until_s=until_s))
    assert (found.pods, found.devices, found.recorded) == (None, None, None)
    assert re.match(message, found.error)
    assert kubelet.calls == ["pods"]


def test_without_pods_the_record_must_have_all_that_is_listed(tmp_path):
    """A holder without uid cannot be reported, and must not look as if it held nothing."""
    kubelet = Kubelet(NO_ROUTE, DEVICES)
    path = tmp_path / "checkpoint"
    for uids in ({}, {"uid-b": "GPU-1"}):
        if uids:
            record(path, **uids)
        found = asyncio.run(KubeletView(kubelet, kubelet, path).snapshot())
        assert (found.recorded, found.has_holdings) == (None, False)
        assert found.error.endswith(f"checkpoint {path}: lacks the devices of pod default/a")


def test_without_pods_and_pod_resources_nothing_is_known(tmp_path):
    """The record has uids alone."""
    kubelet = Kubelet(NO_ROUTE, NO_SOCKET)
    record(tmp_path / "checkpoint", **{"uid-a": "GPU-0"})
    found = asyncio.run(KubeletView(kubelet, kubelet, tmp_path / "checkpoint").snapshot())
    assert not found.has_holdings
    assert str(NO_SOCKET) in found.error


# --- The checkpoint --------------------------------------------------------------------------


def record(path, **uids):
    """The kubelet's record: these uids' container `main` has this GPU."""
    entries = [
        {"PodUID": uid, "ContainerName": "main", "ResourceName": GPU, "DeviceIDs": {"-1": [one]}}
        for uid, one in uids.items()
    ]
    body = {"Data": {"PodDeviceEntries": entries}, "Checksum": 1}
    path.write_text(json.dumps(body))


def view(path, devices: PodDevices | KubeletError = DEVICES):
    """A look with this file."""
    kubelet = Kubelet(PODS, devices)
    return asyncio.run(KubeletView(kubelet, kubelet, path).snapshot())


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        pytest.param(DEVICES, (holding(POD, "main", "GPU-0"),), id="a pod that is listed"),
        pytest.param(PodDevices(frozenset(), ()), (), id="a pod that was rejected"),
        pytest.param(NO_SOCKET, (holding(POD, "main", "GPU-0"),), id="no PodResources"),
    ],
)
def test_the_checkpoint_shows_active_pods_alone(tmp_path, devices, expected):
    """It is behind: a pod that was rejected would hold its GPUs for ever."""
    record(tmp_path / "checkpoint", **{"uid-a": "GPU-0", "uid-gone": "GPU-1"})
    found = view(tmp_path / "checkpoint", devices)
    assert found.recorded == expected
    assert found.has_holdings


@pytest.mark.parametrize(
    ("make", "noted"),
    [
        pytest.param(lambda path: path.write_text("{"), "expected JSON", id="no JSON"),
        pytest.param(lambda path: path.mkdir(), "Is a directory", id="no file"),
    ],
)
def test_a_checkpoint_that_cannot_be_read_is_reported(tmp_path, make, noted):
    """The rest is known all the same; without either no holder is known."""
    path = tmp_path / "checkpoint"
    make(path)
    found = view(path)
    assert (found.devices, found.recorded, found.has_holdings) == (DEVICES, None, True)
    assert found.error.startswith(f"checkpoint {path}: ")
    assert noted in found.error
    assert not view(path, NO_SOCKET).has_holdings


@pytest.mark.parametrize(
    ("with_devices", "is_read"),
    [
        pytest.param(None, False, id="of its own accord not"),
        pytest.param(False, False, id="not allowed"),
        pytest.param(True, True, id="allowed"),
    ],
)
def test_during_a_call_pod_resources_is_read_only_where_allowed(tmp_path, with_devices, is_read):
    """The checkpoint stands in for it."""
    record(tmp_path / "checkpoint", **{"uid-a": "GPU-0"})
    kubelet = Kubelet(PODS, DEVICES)

    async def go():
        snapshots = KubeletView(kubelet, kubelet, tmp_path / "checkpoint")
        async with snapshots.gate.call():
            return await snapshots.snapshot(with_devices=with_devices)

    found = asyncio.run(go())
    assert (found.devices is not None) is is_read
    assert found.recorded == (holding(POD, "main", "GPU-0"),)
    assert found.error == ""
    assert kubelet.calls == ["pods", "devices"][: 1 + is_read]


# --- What pods still have ---------------------------------------------------------------------


def still_held(answers, *holdings):
    """What of that is still held, which pods were read, and how long it took."""
    kubelet = Kubelet(PODS, DEVICES)
    kubelet.answers |= answers
    found, took_s = in_call(
        kubelet, lambda view, until_s: view.still_held(holdings, until_s=until_s)
    )
    return found, kubelet.calls, took_s


def test_what_a_pod_still_has_is_read_for_that_pod_alone():
    """Each pod is read once; what else it has does not matter."""
    first, second = holding(POD, "main", "x", "y"), holding(POD, "side", "z")
    noted = (
        holding(POD, "main", "y", "w", has_uid=False),
        holding(POD, "other", "x", has_uid=False),
    )
    found, calls, _ = still_held({"default/a": noted}, first, second)
    assert found == StillHeld((holding(POD, "main", "y"),))
    assert calls == ["default/a"]


def test_a_pod_that_cannot_be_read_holds_nothing():
    """It has gone, or the kubelet is too old to serve one pod alone."""
    gone = KubeletError("pod a in namespace default not found")
    other = node_pod("b")
    had = holding(other, "main", "y")
    answers = {"default/a": gone, "default/b": (holding(other, "main", "y", has_uid=False),)}
    found, calls, _ = still_held(answers, holding(POD, "main", "x"), had)
    assert found == StillHeld((had,))
    assert calls == ["default/a", "default/b"]


LATE = KubeletError("PodResources at /x: DEADLINE_EXCEEDED", is_late=True)


@pytest.mark.parametrize("answer", [None, LATE], ids=["none in our time", "none in its time"])
def test_a_pod_that_is_not_read_in_time_may_hold_what_it_had(answer):
    """The kubelet waits for the plugin meanwhile, so that all are read at once."""
    other = node_pod("b")
    mine, its = holding(POD, "main", "x"), holding(other, "main", "y")
    found, _, took_s = still_held({"default/a": answer, "default/b": None}, mine, its)
    assert found == StillHeld((), (mine, its))
    assert took_s == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param({"g": frozenset({"x"})}, {"g": {"x"}}, id="what it lists"),
        pytest.param(NO_SOCKET, None, id="no answer is not none"),
    ],
)
def test_devices_that_the_kubelet_knows(answer, expected):
    """Whoever takes silence for an empty list would register again for nothing."""

    async def go():
        kubelet = Kubelet((), ())
        kubelet.answers["allocatable"] = answer
        return await KubeletView(kubelet, kubelet, NOWHERE).known_devices()

    assert asyncio.run(go()) == expected
