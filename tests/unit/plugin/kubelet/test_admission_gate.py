"""Calls of the kubelet's and questions of ours take turns."""

from __future__ import annotations

import asyncio

import pytest

from plugin.kubelet import AdmissionGate
from plugin.kubelet.admission_gate import QUIET_S
from tests.virtual_time import run_at_once


def test_a_gate_is_busy_during_a_call_and_a_moment_after():
    """The kubelet notes what it gave when it has our answer."""

    async def go():
        gate = AdmissionGate()
        assert not gate.is_busy
        async with gate.call():
            async with gate.call():
                assert gate.is_busy
            assert gate.is_busy
        assert gate.is_busy
        await asyncio.sleep(QUIET_S + 0.01)
        assert not gate.is_busy

    run_at_once(go())


def test_a_call_waits_for_the_question_that_is_under_way():
    """The answer to the call is what lets the kubelet reserve devices."""

    async def go():
        gate = AdmissionGate()
        happened = []

        async def call():
            async with gate.call():
                happened.append("called")

        with gate.request():
            task = asyncio.create_task(call())
            await asyncio.sleep(0.1)
            happened.append("reported")
        await task
        assert happened == ["reported", "called"]

    run_at_once(go())


def test_a_question_without_end_holds_up_no_call_for_long():
    """The kubelet waits for a second."""

    async def go():
        gate = AdmissionGate()
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        with gate.request():
            async with gate.call():
                assert loop.time() - begun_s == pytest.approx(0.3)

    run_at_once(go())


def test_quiet_comes_when_the_last_call_is_over():
    """Each call puts it off; whoever cannot wait gets an error."""

    async def go():
        gate = AdmissionGate()
        loop = asyncio.get_running_loop()
        assert await gate.quiet(0.0)
        async with gate.call():
            waiting = asyncio.create_task(gate.quiet(5.0))
            assert not await gate.quiet(0.5)
        await asyncio.sleep(QUIET_S / 2)
        async with gate.call():
            await asyncio.sleep(0.1)
        ended_s = loop.time()
        assert await waiting
        assert loop.time() - ended_s == pytest.approx(QUIET_S)

    run_at_once(go())
