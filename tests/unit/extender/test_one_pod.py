"""How much code one pod passes from filter to its accepted bind: calls and modules, counted.

A count and no time: it is the same on every machine. A new layer that only hands on, or a second
way beside one that is there, shows here first.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from extender.engine import Gateway, make_engine
from extender.execution import BindDependencies, BindExecutor
from extender.http.routes import create_app
from extender.http.verbs import Dependencies
from extender.observe import ExtenderMetrics
from tests.unit.extender.engines import RULES, see_cluster, spec
from tests.unit.extender.pods import args, binding, pod
from tests.unit.extender.shells import FakeTime, Log, backoff

if TYPE_CHECKING:
    from types import FrameType

    from extender.protocol import Answer
    from kube.client import Binding

ROOT = Path(__file__).parents[3]
OURS = ("extender/", "kube/", "topology/")
MAX_MODULES = 35
MAX_CALLS = 300
"""Of Python 3.11, which also calls each comprehension."""


class Calls:
    """Counts the calls of our code while it is the profiler."""

    def __init__(self) -> None:
        self.by_module: Counter[str] = Counter()

    def __call__(self, frame: FrameType, event: str, _arg: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT):
            module = path.relative_to(ROOT).as_posix()
            if module.startswith(OURS):
                self.by_module[module] += 1


class Api:
    """An API server that accepts every Binding."""

    async def get_pod(self, namespace: str, name: str, *, timeout_s: float) -> None:
        """Read a pod: not needed here."""
        raise AssertionError((namespace, name, timeout_s))

    async def bind(self, binding: Binding, *, timeout_s: float) -> None:
        """Create a Binding."""
        assert binding.node
        assert timeout_s > 0


class Extender:
    """The routes, the engine and the executor of binds, as `extender.wiring` puts them together."""

    def __init__(self) -> None:
        engine = make_engine(RULES)
        gateway = Gateway(engine)
        see_cluster(
            gateway, spec({"count": 20, "machine": "dgx-1-v100"}, {"count": 20, "machine": "8x-l4"})
        )
        self.nodes = list(engine.cluster.snapshot.nodes)
        time = FakeTime()
        self._binds = BindExecutor(
            BindDependencies(
                handle=gateway.handle,
                api=Api(),
                aligns=engine.cluster.aligns,
                n_ended=lambda node: engine.cluster.pods.n_ended[node],
                is_member=engine.groups.waiting_uids.__contains__,
                is_held=engine.groups.releases.is_held,
                clock=time,
                timer=time,
                backoff=backoff,
                sleep=time.sleep,
            ),
            total_s=4.0,
        )
        self._app = create_app(
            Dependencies(
                gateway=gateway,
                verbs=self,
                metrics=ExtenderMetrics(engine),
                log=Log(),
                clock=time,
                timer=time,
                body_limit_bytes=1 << 20,
                is_ready=lambda: True,
            )
        )

    async def bind(self, body: bytes) -> Answer:
        """Answer a bind call."""
        return await self._binds.bind(body)

    async def preempt(self, body: bytes) -> Answer:
        """Answer a preempt call: there is none here."""
        raise AssertionError(body)

    async def read_pod(self, namespace: str, name: str) -> bytes | None:
        """Read a pod for explain: there is none here."""
        raise AssertionError((namespace, name))

    def call(self, verb: str, body: bytes) -> Any:
        """One request, as the server hands it over."""
        scope = {"type": "http", "method": "POST", "path": f"/{verb}", "headers": []}
        sent: list[Any] = []

        async def go() -> None:
            pieces = [{"type": "http.request", "body": body}]

            async def receive() -> Any:
                return pieces.pop() if pieces else await asyncio.Future()

            async def send(message: Any) -> None:
                sent.append(message)

            await self._app({**scope, "query_string": b""}, receive, send)

        asyncio.run(go())
        assert sent[0]["status"] == 200
        return json.loads(sent[1]["body"])

    def place(self, uid: str) -> None:
        """Filter, prioritize and bind a pod, as kube-scheduler calls."""
        content = pod(4, uid=uid, affinity="nvlink")
        named = self.call("filter", args(content, self.nodes))["NodeNames"]
        scores = self.call("prioritize", args(content, named))
        best = max(scores, key=lambda one: one["Score"])["Host"]
        assert self.call("bind", binding(uid, best)) == {"Error": ""}


def test_one_pod_passes_few_modules_and_calls():
    """The third pod: what the bind before it left to reconcile counts, filling caches does not."""
    extender, calls = Extender(), Calls()
    extender.place("first")
    extender.place("second")
    before = sys.getprofile()
    sys.setprofile(calls)
    try:
        extender.place("third")
    finally:
        sys.setprofile(before)
    found = {name: n for name, n in calls.by_module.items() if "tests" not in name}
    assert len(found) <= MAX_MODULES, sorted(found)
    assert sum(found.values()) <= MAX_CALLS, found
