"""When a kubelet is asked how it aligns, and who hears what it says."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from kube.client import TopologyManagerSettings
from kube.errors import KubeError, Unreachable
from plugin.kubelet import TopologyManagerPoller
from tests.unit.plugin.virtual_time import run_at_once
from topology.annotations import TopologyManagerPolicy, TopologyManagerScope

NONE = TopologyManagerSettings(TopologyManagerPolicy.NONE, TopologyManagerScope.CONTAINER)
SILENT: KubeError = Unreachable(0, "Unreachable", "no route")


@dataclass
class Kubelet:
    """A kubelet that gives one answer after another, the last one for ever; what was heard of it.

    With `takes_s` an answer takes its time.
    """

    answers: list[TopologyManagerSettings | KubeError]
    takes_s: float = 0.0
    times_s: list[float] = field(default_factory=list)
    told: list[TopologyManagerSettings] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)

    async def topology_manager(self, *, timeout_s=None):
        """The next answer."""
        assert timeout_s == 0.5
        self.times_s.append(asyncio.get_running_loop().time() - 1000.0)
        await asyncio.sleep(self.takes_s)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, KubeError):
            raise answer
        return answer

    def inquiry(self):
        """What is tried."""
        return TopologyManagerPoller(
            self, on_told=self.told.append, on_trouble=self.troubles.append
        )


@pytest.mark.parametrize(
    ("answer", "told", "troubles"),
    [
        pytest.param(NONE, [NONE], [], id="it tells"),
        pytest.param(SILENT, [], [str(SILENT)], id="it is silent"),
    ],
)
def test_one_question_is_one_answer_or_none(answer, told, troubles):
    """The start of an agent waits for no more."""
    kubelet = Kubelet([answer])
    assert run_at_once(kubelet.inquiry().ask()) is bool(told)
    assert (kubelet.times_s, kubelet.told, kubelet.troubles) == ([0.0], told, troubles)


def test_a_kubelet_that_is_silent_is_asked_more_and_more_rarely_until_it_tells():
    """It may lack the right to be asked for hours, and get it then."""
    kubelet = Kubelet([*[SILENT] * 9, NONE])

    async def go():
        kubelet.inquiry().begin()
        await asyncio.sleep(1000.0)

    run_at_once(go())
    assert kubelet.times_s == [0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 63.0, 123.0, 183.0, 243.0]
    assert kubelet.told == [NONE]
    assert kubelet.troubles == [str(SILENT)] * 9


def test_a_new_inquiry_takes_the_place_of_the_one_under_way():
    """Each registration begins one: two would ask twice as often, and tell the old answer last."""
    kubelet = Kubelet([NONE], takes_s=2.0)

    async def go():
        inquiry = kubelet.inquiry()
        inquiry.begin()
        await asyncio.sleep(1.0)
        inquiry.begin()
        await asyncio.sleep(10.0)

    run_at_once(go())
    assert kubelet.times_s == [0.0, 1.0]
    assert kubelet.told == [NONE]


def test_nobody_is_asked_once_it_is_stopped():
    """The agent has ended."""
    kubelet = Kubelet([SILENT])

    async def go():
        inquiry = kubelet.inquiry()
        inquiry.stop()
        inquiry.begin()
        await asyncio.sleep(2.0)
        inquiry.stop()
        await asyncio.sleep(100.0)

    run_at_once(go())
    assert kubelet.times_s == [0.0, 1.0]
