"""300 mixed nodes, thousands of pods that come and go, held against etcd's own history.

First everything around the pods dies, lags, lies or jumps; then, undisturbed, pods arrive so fast
that the fleet is nearly full.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.control.decision_log import assert_best_plans, assert_replays
from tests.cluster.control.proxy import CALM, Trouble, open_proxy, write_kubeconfig
from tests.cluster.control.skew import set_offset, skewed
from tests.cluster.fleet.nodes import FLEET
from tests.cluster.fleet.stage import EXTENDER_USER, play, start_cast
from tests.cluster.fleet.workload import Mix, arrivals, submit

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.cluster.control.processes import Program

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.own_plane]

N_PODS = int(os.environ.get("COTERIE_FLEET_PODS", "3000"))
N_KILLS = int(os.environ.get("COTERIE_KILLS", "10"))
SEED = int(os.environ.get("COTERIE_SEED", "1"))
BACKOFF_S = 10.0
"""kube-scheduler's longest error backoff (`podMaxBackoffSeconds`), which nothing cuts short."""
LONGEST_WAIT_S = 100.0
"""Ten whole backoffs; a pod that nothing wakes waits five minutes."""
RECOVERY_S = 600.0
"""After the last fault the pods that piled up hang if they are not placed by then."""
AGAIN_S = 5.0
"""By then the extender's watches have begun again, and ended if they are too old."""
N_PILED = 10
N_WATCHES = 4
"""Of the extender: nodes, assigned, nominated and pending pods, these of one scheduler."""
WATCH_S = 34.0
"""The longest that a watch lasts (`kube.watch.reflector.Timing`), and a second."""
N_LATE = int(os.environ.get("COTERIE_LATE_PODS", "2000"))
"""Fewest pods that arrive when everything has recovered.

30 pods/s of 2.7 GPUs that run 27 s each want 2,150 GPUs of 2,400 on average: most of the time some
size or affinity has no room, and pods wait. It takes two such lives to come near that.
"""


@dataclass
class Faults:
    """Brings faults about, one after another, and remembers what it did and when."""

    cast: Any
    proxy: Any
    clock: Any
    api: Any
    chance: random.Random
    done: Counter[str] = field(default_factory=Counter)
    diary: list[str] = field(default_factory=list)

    async def kill(self, program: Program) -> None:
        """SIGKILL, a short death, a restart."""
        await asyncio.to_thread(program.kill)
        await asyncio.sleep(self.chance.uniform(0, 1.5))
        await asyncio.to_thread(program.start)

    async def kill_extender(self) -> None:
        """The ledger is rebuilt from the API server."""
        await self.kill(self.cast.extender)

    async def kill_scheduler(self) -> None:
        """Bindings under way lose their caller."""
        await self.kill(self.cast.scheduler)

    async def kill_api_server(self) -> None:
        """Watches break; writes under way may or may not have been done."""
        await self.kill(self.cast.control_plane.api_server)

    async def stop_extender(self) -> None:
        """It hangs for 20 s and goes on with what it knew."""
        self.cast.extender.pause()
        await asyncio.sleep(20)
        self.cast.extender.resume()

    async def slow_api_server(self) -> None:
        """Every call of the extender takes up to a second and a half."""
        await self._trouble(Trouble(delay_s=1.5), 8)

    async def failing_api_server(self) -> None:
        """Every third call of the extender fails, some after they were acted on (never a 429)."""
        for status, is_late in ((500, False), (500, True), (429, False), (503, True), (504, True)):
            await self._trouble(Trouble(failing=0.35, status=status, is_late=is_late), 2)

    async def cut_api_server(self) -> None:
        """Connections break or hang; watches are cut again and again."""
        self.proxy.set_trouble(Trouble(cut=0.3, hang=0.1, delay_s=0.1))
        for _ in range(4):
            self.proxy.break_watches()
            await asyncio.sleep(2)
        self.proxy.set_trouble(CALM)

    async def lost_api_server(self) -> None:
        """No call passes while it dies and for a second more."""
        self.proxy.set_trouble(Trouble(is_gone=True))
        await self.kill_api_server()
        await asyncio.sleep(1)
        self.proxy.set_trouble(CALM)

    async def forced_410(self) -> None:
        """The watch cache was rebuilt meanwhile: the extender's resourceVersion is too old.

        It comes when no one else dies, since an extender that starts has no version to go on from.
        """
        n_before = self.n_410
        async with asyncio.timeout(RECOVERY_S):
            while self.n_410 == n_before:
                await self.lost_api_server()
                await asyncio.sleep(AGAIN_S)

    @property
    def n_410(self) -> int:
        """How many watches of the extender ended so."""
        errors = self.cast.extender.events("watch_error")
        return sum(one["detail"].startswith("410") for one in errors)

    async def clock_jumps(self) -> None:
        """An hour ahead, then two back, then right again, for the extender alone."""
        for offset_s in (3600.0, -3600.0, 0.0):
            set_offset(self.clock, offset_s)
            await asyncio.sleep(2)

    async def all(self, n_kills: int) -> None:
        """Every fault, the kills `n_kills` times each, in an order that the seed decides.

        What only goes wrong needs the others alive, so it comes first. What dies, dies in two
        streams side by side, so that deaths meet: the API server in one, the extender and the
        scheduler in the other.
        """
        await self._stream([self.slow_api_server, self.failing_api_server, self.cut_api_server])
        inside = n_kills * [self.kill_extender, self.kill_scheduler]
        await asyncio.gather(
            self._stream([*inside, self.stop_extender, self.clock_jumps]),
            self._stream([*(n_kills * [self.kill_api_server]), self.lost_api_server]),
        )
        await self._stream([self.forced_410])
        self.note("over")

    async def _stream(self, plan: list[Callable[[], Coroutine[Any, Any, None]]]) -> None:
        self.chance.shuffle(plan)
        for fault in plan:
            self.note(fault.__name__)
            await fault()
            self.done[fault.__name__] += 1
            await asyncio.sleep(self.chance.uniform(0, 1))

    def note(self, event: str) -> None:
        """Write into the diary what begins now."""
        self.diary.append(time.strftime("%H:%M:%S ", time.gmtime()) + event)

    async def _trouble(self, trouble: Trouble, for_s: float) -> None:
        self.proxy.set_trouble(trouble)
        await asyncio.sleep(for_s)
        self.proxy.set_trouble(CALM)


def test_the_fleet_outlives_every_fault(control_plane, tmp_path):
    """Afterwards no device was allocated twice, and no pod that fits is still pending."""
    clock, log = tmp_path / "clock", tmp_path / "decisions.jsonl"
    environment = skewed(clock)

    async def main():
        chance = random.Random(SEED)  # noqa: S311 - faults that can be repeated
        async with open_proxy(control_plane.kubeconfig(EXTENDER_USER), seed=SEED) as proxy:
            write_kubeconfig(proxy, tmp_path / "proxied.kubeconfig")
            cast = await asyncio.to_thread(
                start_cast,
                control_plane,
                kubeconfig=tmp_path / "proxied.kubeconfig",
                environment=environment,
                decision_log=log,
            )
            try:
                async with play(cast, FLEET) as played:
                    faults = Faults(cast, proxy, clock, played.api, chance)
                    await run(played, faults)
            finally:
                await asyncio.to_thread(cast.stop)
        return played

    assert_best_plans(asyncio.run(main()), log)
    assert_replays(log)


async def run(played, faults):
    """Pods arrive while everything fails, and again when it is over; none may be left over.

    They arrive slowly at first, since little is placed then, and room must not be what they lack.
    """
    checker, begun_s = played.checker, time.monotonic()
    early = arrivals(Mix(N_PODS, pods_per_s=8, mean_run_s=25, seed=SEED, prefix="early"))
    submission = asyncio.create_task(submit(played.api, early))
    await faults.all(N_KILLS)
    submission.cancel()
    await asyncio.gather(submission, return_exceptions=True)
    async with asyncio.timeout(RECOVERY_S):
        await watches_are_fresh(faults.cast.extender)
    await played.until(lambda: len(checker.unbound()) < N_PILED, within_s=RECOVERY_S)
    faults.note("recovered")
    await asyncio.sleep(BACKOFF_S)
    calm_s = time.monotonic()
    n_late = max(N_PODS - len(checker.created_at_s), N_LATE)
    late = arrivals(Mix(n_late, pods_per_s=30, mean_run_s=27, seed=SEED, prefix="late"))
    n_given: list[int] = []

    def are_all_bound():
        n_given.append(sum(pod.size for pod in checker.live()))
        return len(checker.created_at_s) >= n_before + n_late and not checker.unbound()

    n_before = len(checker.created_at_s)
    await asyncio.gather(
        submit(played.api, late),
        played.until(are_all_bound, within_s=late[-1].at_s + RECOVERY_S),
    )
    faults.note("all placed")
    assert faults.done == Counter(
        kill_extender=N_KILLS,
        kill_scheduler=N_KILLS,
        kill_api_server=N_KILLS,
        stop_extender=1,
        slow_api_server=1,
        failing_api_server=1,
        cut_api_server=1,
        lost_api_server=1,
        forced_410=1,
        clock_jumps=1,
    )
    extender = faults.cast.extender
    assert len(extender.events("listening")) == 1 + N_KILLS  # it never ended by itself
    assert checker.faults == []
    assert checker.n_bound_gpu > 0.85 * checker.n_bound
    assert max(n_given) > min(0.75 * 2400, n_late / 2)
    waits = checker.longest_waits(excused=[(begun_s, calm_s)])
    longest_s = max(waits.values(), default=0.0)
    print(f"longest wait beside room {longest_s:.1f} s")  # noqa: T201 - a figure
    print(summary(played, faults, faults.proxy))  # noqa: T201 - `pytest -s` shows it
    assert {name: wait for name, wait in waits.items() if wait > LONGEST_WAIT_S} == {}


async def watches_are_fresh(extender):
    """Wait until no watch of the extender hangs: each gets an event, or ends, in that time."""
    ages_s = [WATCH_S]
    while len(ages_s) < N_WATCHES or max(ages_s) >= WATCH_S:
        metrics = (await asyncio.to_thread(extender.get, "/metrics")).text
        name = r"\w+_watch_last_heard_timestamp_seconds"
        found = re.findall(rf"^{name}{{.*}} (.+)$", metrics, re.MULTILINE)
        ages_s = [time.time() - float(at_s) for at_s in found]
        await asyncio.sleep(0.5)


def summary(played, faults, proxy):
    """What the run was worth."""
    checker = played.checker
    return (
        f"{checker.n_bound} pods bound ({checker.n_bound_gpu} with GPUs) through "
        f"{faults.done.total()} faults; requests through the proxy: {dict(proxy.seen)}\n"
        + "\n".join(faults.diary)
    )
