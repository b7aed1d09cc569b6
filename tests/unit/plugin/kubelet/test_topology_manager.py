"""When the kubelet is polled for its Topology Manager's settings."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from kube.errors import KubeError, Unreachable
from plugin.kubelet import TopologyManagerPoller
from tests.virtual_time import run_at_once
from topology.annotations import TopologyManagerPolicy, TopologyManagerScope
from topology.topology_manager import TopologyManager

NONE = TopologyManager(TopologyManagerPolicy.NONE, TopologyManagerScope.CONTAINER)
SILENT: KubeError = Unreachable(0, "Unreachable", "no route")


@dataclass
class Kubelet:
    """A kubelet that gives one answer after another, the last one for ever.

    An answer takes `takes_s`.
    """

    answers: list[TopologyManager | KubeError]
    takes_s: float = 0.0
    times_s: list[float] = field(default_factory=list)
    settings: list[TopologyManager] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    async def topology_manager(self, *, timeout_s=None):
        """The next answer."""
        assert timeout_s == 0.5
        self.times_s.append(asyncio.get_running_loop().time() - 1000.0)
        await asyncio.sleep(self.takes_s)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, KubeError):
            raise answer
        return answer

    def poller(self):
        """The poller under test, with the shortest delays that chance allows."""
        return TopologyManagerPoller(
            self, on_settings=self.settings.append, on_error=self.errors.append, jitter=lambda: 0.0
        )


@pytest.mark.parametrize(
    ("answer", "settings", "errors"),
    [
        pytest.param(NONE, [NONE], [], id="it answers"),
        pytest.param(SILENT, [], [str(SILENT)], id="it fails"),
    ],
)
def test_one_poll_is_one_request(answer, settings, errors):
    """The start of a plugin waits for no more."""
    kubelet = Kubelet([answer])
    assert run_at_once(kubelet.poller().poll()) is bool(settings)
    assert (kubelet.times_s, kubelet.settings, kubelet.errors) == ([0.0], settings, errors)


def test_requests_that_fail_are_retried_with_growing_delays():
    """The plugin may lack the right for hours, and get it then."""
    kubelet = Kubelet([*[SILENT] * 9, NONE])

    async def go():
        kubelet.poller().start()
        await asyncio.sleep(1000.0)

    run_at_once(go())
    assert kubelet.times_s == [0.0, 0.5, 1.5, 3.5, 7.5, 15.5, 31.5, 61.5, 91.5, 121.5]
    assert kubelet.settings == [NONE]
    assert kubelet.errors == [str(SILENT)] * 9


def test_a_new_start_replaces_the_poll_in_flight():
    """Each registration starts one: two would poll twice as often, and end with the old answer."""
    kubelet = Kubelet([NONE], takes_s=2.0)

    async def go():
        poller = kubelet.poller()
        poller.start()
        await asyncio.sleep(1.0)
        poller.start()
        await asyncio.sleep(10.0)

    run_at_once(go())
    assert kubelet.times_s == [0.0, 1.0]
    assert kubelet.settings == [NONE]


def test_nothing_is_requested_once_it_is_stopped():
    """The plugin has ended."""
    kubelet = Kubelet([SILENT])

    async def go():
        poller = kubelet.poller()
        poller.stop()
        poller.start()
        await asyncio.sleep(2.0)
        poller.stop()
        await asyncio.sleep(100.0)

    run_at_once(go())
    assert kubelet.times_s == [0.0, 0.5, 1.5]
