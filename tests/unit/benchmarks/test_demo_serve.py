"""The demo's live cluster: arrivals and ends by the clock, until it is ended."""

from __future__ import annotations

import os
import signal

import pytest

from benchmarks.demo.fleet import lay_out_fleet, list_products
from benchmarks.demo.policies import MostAllocatedPolicy
from benchmarks.demo.serve import MOST_WAITING, Traffic, come_and_go, until_signal
from benchmarks.rivals import PLAIN_KUBELET


@pytest.fixture(scope="module")
def traffic():
    """Traffic on a small cluster, which it fills."""
    nodes = lay_out_fleet("2x dgx-1-v100, 2x 4x-l40s")
    policy = MostAllocatedPolicy("rival", PLAIN_KUBELET, nodes, seed=0)
    found = Traffic(policy, list_products(nodes.values()))
    found.fill(60)
    return found


def test_the_cluster_stays_busy_and_changes(traffic):
    """For longer than any pod lasts, with few that wait and names that come once."""
    seen = set(traffic.player.running)
    before = traffic.minute
    for _ in range(240):
        traffic.advance()
        seen |= set(traffic.player.running)
        assert len(traffic.player.waiting) <= MOST_WAITING
    assert traffic.minute == before + 240
    assert len(seen) > 20 > len(traffic.player.running) > 0
    assert traffic.player.placed == []


def test_it_ends_when_a_signal_comes(traffic):
    """Each minute takes a wait; the handlers of signals are put back."""
    before, is_ended = traffic.minute, iter([False, False, True])
    come_and_go(traffic, lambda _: next(is_ended))
    assert traffic.minute == before + 2
    handler = signal.getsignal(signal.SIGTERM)
    with until_signal() as ended:
        os.kill(os.getpid(), signal.SIGTERM)
        come_and_go(traffic, ended.wait)
    assert traffic.minute == before + 2
    assert signal.getsignal(signal.SIGTERM) is handler
