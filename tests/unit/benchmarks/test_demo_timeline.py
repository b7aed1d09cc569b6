"""The demo's clock: arrivals, waiting, ends."""

from __future__ import annotations

from benchmarks.demo.pods import DemoPod
from benchmarks.demo.policies import Place
from benchmarks.demo.timeline import play

NODE = "4x-l40s-0"


class FirstFree:
    """The lowest free GPUs of the one node; `log` has what was called."""

    name = "first free"

    def __init__(self):
        self.free = 0b1111
        self.log = []

    def place(self, pod):
        gpus = [i for i in range(4) if self.free >> i & 1][: pod.size]
        self.log.append((pod.name, len(gpus) == pod.size))
        if len(gpus) < pod.size:
            return None
        mask = sum(1 << gpu for gpu in gpus)
        self.free &= ~mask
        return Place(NODE, mask)

    def end(self, pod, place):
        self.log.append((pod.name, "end"))
        self.free |= 0 if place is None else place.gpus


def pod(name, size, arrival, duration):
    """A pod of a given size at a given time."""
    return DemoPod(
        name=name, uid=name, size=size, arrival_minute=arrival, duration_minutes=duration
    )


def test_a_waiting_pod_blocks_no_other_and_keeps_its_turn():
    """Waiting pods are tried in order of arrival whenever pods end."""
    pods = [pod("a", 3, 0, 10), pod("b", 4, 1, 5), pod("c", 2, 2, 5), pod("d", 1, 3, 20)]
    policy = FirstFree()
    run = play(policy, pods)
    started = {one.pod.name: (one.minute, one.waited_minutes) for one in run.placed}
    assert started == {"a": (0, 0), "d": (3, 0), "c": (10, 8), "b": (23, 22)}
    assert policy.log == [
        ("a", True),
        ("b", False),
        ("c", False),
        ("d", True),
        ("a", "end"),
        ("b", False),
        ("c", True),
        ("c", "end"),
        ("b", False),
        ("d", "end"),
        ("b", True),
        ("b", "end"),
    ]
    assert run.unplaced == ()


def test_a_pod_that_fits_nowhere_is_reported():
    """It waits to the end, is taken back then and counted as never placed."""
    policy = FirstFree()
    run = play(policy, [pod("huge", 8, 0, 1), pod("small", 1, 0, 1)])
    assert [one.name for one in run.unplaced] == ["huge"]
    assert policy.log[-1] == ("huge", "end")
    assert [one.pod.name for one in run.placed] == ["small"]


def test_gpus_are_free_again_in_the_minute_in_which_a_pod_ends():
    """Ends come before arrivals."""
    run = play(FirstFree(), [pod("a", 4, 0, 5), pod("b", 4, 5, 5)])
    assert [one.waited_minutes for one in run.placed] == [0, 0]


def test_what_runs_right_after_the_last_arrival_is_kept():
    """The map of the fleet shows it."""
    run = play(FirstFree(), [pod("a", 3, 0, 10), pod("b", 4, 1, 5)])
    assert [one.pod.name for one in run.running] == ["a"]
    assert run.n_waited == 1
