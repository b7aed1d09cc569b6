"""Calls with a deadline: the others do not wait for the one that hangs."""

from __future__ import annotations

import threading

import pytest

from plugin.nvidia.nvml.gpu_calls import GpuCalls
from plugin.nvidia.nvml.timing import NvmlTiming


def test_answers_by_key():
    """All of them, in the order of the keys."""
    calls = GpuCalls()
    assert list(calls.run({"b": lambda: 1, "a": lambda: 2}, 60).items()) == [("b", 1), ("a", 2)]
    assert calls.outstanding() == frozenset()


def test_calls_run_at_the_same_time():
    """Eight GPUs that each take a second take one together."""
    both = threading.Barrier(2, timeout=60)
    assert set(GpuCalls().run({"a": both.wait, "b": both.wait}, 60).values()) == {0, 1}


def test_a_late_call_is_not_repeated_before_it_has_returned():
    """A GPU that hangs must not collect a thread with each poll; its late answer is dropped."""
    may_return = threading.Event()

    def has_returned(key, done, _left_s):
        return (key != "a" or may_return.is_set()) and done.wait(60)

    calls = GpuCalls(NvmlTiming(has_returned=has_returned))
    waits = {"a": lambda: may_return.wait(60), "b": lambda: True}
    assert calls.run(waits, 60) == {"b": True}
    assert calls.outstanding() == calls.late() == {"a"}
    called: list[str] = []
    assert calls.run({"a": lambda: called.append("a")}, 60) == {}
    assert called == []
    may_return.set()
    for thread in threading.enumerate():
        if thread.name == "nvml a":
            thread.join(60)
    assert calls.outstanding() == calls.late() == frozenset()
    assert calls.run({"a": lambda: "new"}, 60) == {"a": "new"}


def test_a_call_is_late_only_past_its_limit():
    """A call under way says nothing about the GPU."""
    calls = GpuCalls()
    seen = calls.run({"a": lambda: (calls.outstanding(), calls.late())}, 60)
    assert seen == {"a": (frozenset({"a"}), frozenset())}


def test_the_first_error_by_key_is_raised_when_all_have_returned():
    """A driver that is gone is met by every thread."""
    done: list[str] = []

    def fail(text: str) -> None:
        done.append(text)
        raise ValueError(text)

    with pytest.raises(ValueError, match="b"):
        GpuCalls().run({"b": lambda: fail("b"), "a": lambda: fail("a")}, 60)
    assert sorted(done) == ["a", "b"]
