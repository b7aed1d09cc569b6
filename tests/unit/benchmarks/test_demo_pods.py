"""The demo's pods: a seeded mix in the form in which kube-scheduler has them."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.demo.pods import DURATION_MINUTES, MOST_REQUIRED, DemoPod, draw_pods
from extender.protocol import WirePod, parse_pod
from topology.annotations import Affinity, Strength

MIX = draw_pods(2000, seed=3)


def test_the_seed_decides_everything():
    """A demo that is run again shows the same pods."""
    assert draw_pods(50, seed=1) == draw_pods(50, seed=1)
    assert draw_pods(50, seed=1) != draw_pods(50, seed=2)


def test_every_size_and_affinity_occurs():
    """Sizes 1 to 8, every affinity, absent and required ones."""
    assert Counter(pod.size for pod in MIX).keys() == set(range(1, 9))
    assert {pod.affinity for pod in MIX} == {None, "nvlink", "numa", "pcie-switch", "none"}
    assert 0.05 < sum(pod.is_required for pod in MIX) / len(MIX) < 0.3


def test_pods_arrive_in_order_and_last_as_long_as_stated():
    """The report quotes the range of durations."""
    arrivals = [pod.arrival_minute for pod in MIX]
    assert arrivals == sorted(arrivals)
    durations = {pod.duration_minutes for pod in MIX}
    assert (min(durations), max(durations)) == DURATION_MINUTES


def test_required_only_where_some_machine_can_satisfy_it():
    """No pod of the mix waits for ever."""
    for pod in MIX:
        if pod.is_required:
            assert pod.affinity is not None
            assert pod.size <= MOST_REQUIRED[pod.affinity]


@pytest.mark.parametrize("pod", MIX[:40], ids=lambda pod: pod.name)
def test_the_extender_reads_the_pod_as_it_was_meant(pod):
    """Size and annotations come back from the wire form."""
    request = parse_pod(WirePod.model_validate(pod.as_json()), ("nvidia.com/gpu",))
    assert (request.uid, request.full_name) == (pod.uid, f"demo/{pod.name}")
    assert request.size_gpus == pod.size
    assert request.shape is not None
    assert request.shape.policy == pod.policy
    assert request.shape.policy.affinity is Affinity(pod.affinity or "any")
    assert (request.shape.policy.strength is Strength.REQUIRED) is pod.is_required
    assert request.warnings == ()


def test_the_wire_form_has_neither_kind_nor_version():
    """kube-scheduler sends informer objects."""
    assert not {"kind", "apiVersion"} & MIX[0].as_json().keys()


@pytest.mark.parametrize(
    ("size", "affinity", "required", "wish", "is_judged"),
    [
        pytest.param(1, None, False, "best set", False, id="one GPU has nothing to reduce"),
        pytest.param(2, None, False, "best set", True, id="absent means the best set"),
        pytest.param(4, "nvlink", True, "nvlink, required", True, id="a level is judged"),
        pytest.param(4, "none", False, "none", False, id="none does not care"),
    ],
)
def test_what_is_judged(size, affinity, required, wish, is_judged):
    """Bandwidth is judged where the owner wants it."""
    pod = DemoPod(name="p", uid="u", size=size, affinity=affinity, is_required=required)
    assert (pod.wish, pod.is_judged) == (wish, is_judged)
