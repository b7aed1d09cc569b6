"""Routes bind and preempt on a live cluster: executed here, or forwarded to the Lease's holder.

Where several replicas run, a call is forwarded at most once. Everything ends within the time that
the scheduler waits.

So are filter calls for members of a group, since what is claimed for them is known to the holder
alone. Filter stands in the scheduler's serial cycle: such a call waits for no holder, is given
`MEMBER_FILTER_S`, and after a holder that did not answer in time the next calls fail at once, for a
longer time with each that it does not answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from extender.errors import PeerError
from extender.protocol import Answer, Outcome, Reason, TimedAnswer, Verb

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from extender.engine import Engine
    from extender.execution import BindExecutor, PreemptExecutor
    from extender.ha.forward import Peer
    from extender.ha.lease_loop import Replicas
    from kube.client import PodReader

__all__ = ["ForwardedCall", "LeaderRouter", "Peers"]

HOLDER_WAIT_SHARE = 0.5
"""Share of the time there is in which a replica that may soon bind, or know who does, is waited
for."""
MEMBER_FILTER_S = 2.0
"""Most time for the holder's answer about a member of a group, which it looks up: some
milliseconds. No pod of the scheduler is placed meanwhile."""
SILENT_S = 5.0
"""How long a holder that did not answer is not called about members again. kube-scheduler retries
a pod that got an error after 1 to 10 s."""
MOST_SILENT_S = 30.0
"""The same for one that has not answered for long, doubled from `SILENT_S` on: a holder that renews
its Lease and cannot be reached would cost all pods of the scheduler 2 s in each 7."""


@dataclass(frozen=True, slots=True)
class ForwardedCall:
    """A call that another replica forwarded to us, with the time that is left for it."""

    by: str
    left_s: float


@dataclass(frozen=True, slots=True)
class Peers:
    """The other replicas, and the way to them."""

    replicas: Replicas
    peer: Peer


@dataclass(frozen=True, slots=True)
class _Silence:
    """A holder that did not answer, and until when it is not called."""

    holder: str
    pause_s: float
    until_s: float


class LeaderRouter:
    """Bind, preempt, and reading a pod, each within `total_s`."""

    def __init__(  # noqa: PLR0913 - its dependencies, each once
        self,
        engine: Engine,
        api: PodReader,
        *,
        bind: BindExecutor,
        preempt: PreemptExecutor,
        total_s: float,
        timer: Callable[[], float],
        peers: Peers | None = None,
    ) -> None:
        self._engine = engine
        self._api = api
        self._bind = bind
        self._preempt = preempt
        self._total_s = total_s
        self._timer = timer
        self._peers = peers
        self._silence: _Silence | None = None

    async def bind(self, body: bytes, forwarded: ForwardedCall | None = None) -> TimedAnswer:
        """Answer a bind call."""
        return await self._here_or_there(Verb.BIND, body, forwarded, self._bind.bind)

    async def preempt(self, body: bytes, forwarded: ForwardedCall | None = None) -> TimedAnswer:
        """Answer a preempt call."""
        return await self._here_or_there(Verb.PREEMPT, body, forwarded, self._preempt_here)

    async def filter_member(
        self, body: bytes, forwarded: ForwardedCall | None = None
    ) -> Answer | None:
        """Answer filter for a member of a group; None where it is answered here."""
        if self._peers is None or self._peers.replicas.may_bind:
            return None
        replicas = self._peers.replicas
        holder = replicas.other_holder
        if holder is None or forwarded is not None:
            return self._without_holder(Verb.FILTER, f"request received by {replicas.identity}")
        if self._is_silent(holder):
            return self._without_holder(Verb.FILTER, f"replica {holder} did not answer just now")
        timeout_s = min(self._total_s, MEMBER_FILTER_S)
        sent = self._peers.peer.forward(holder, Verb.FILTER.value, body, timeout_s=timeout_s)
        answer = await self._answer_of(Verb.FILTER, holder, sent)
        has_answered = answer.outcome is Outcome.FORWARDED
        self._silence = None if has_answered else self._silence_of(holder)
        return answer

    async def read_pod(self, namespace: str, name: str) -> bytes | None:
        """The JSON of a pod; None where it is not there. Raises `KubeError`."""
        pod = await self._api.get_pod(namespace, name)
        return None if pod is None else pod.body

    async def _preempt_here(self, body: bytes, *, at_most_s: float = math.inf) -> TimedAnswer:
        """Within the term; a bind keeps to it by itself, for which a wait does not count."""
        if self._peers is None:
            return await self._preempt.preempt(body)
        at_most_s = min(at_most_s, self._peers.replicas.left_s)
        return await self._preempt.preempt(body, at_most_s=at_most_s)

    async def _here_or_there(
        self,
        verb: Verb,
        body: bytes,
        forwarded: ForwardedCall | None,
        here: Callable[..., Awaitable[TimedAnswer]],
    ) -> TimedAnswer:
        if self._peers is None:
            return await here(body)
        total_s = self._total_s if forwarded is None else min(self._total_s, forwarded.left_s)
        deadline_s = self._timer() + total_s
        replicas = self._peers.replicas
        await replicas.settled(within_s=HOLDER_WAIT_SHARE * total_s)
        left_s = deadline_s - self._timer()
        if replicas.may_bind:
            return await here(body, at_most_s=left_s)
        holder = replicas.other_holder
        if holder is None or forwarded is not None:
            failed = self._without_holder(verb, f"request received by {replicas.identity}")
            return TimedAnswer(failed, 0.0)
        sent = self._peers.peer.forward(holder, verb.value, body, timeout_s=left_s)
        answer = await self._answer_of(verb, holder, sent)
        return TimedAnswer(answer, None if answer.outcome is Outcome.FORWARDED else 0.0)

    async def _answer_of(self, verb: Verb, holder: str, sent: Awaitable[bytes]) -> Answer:
        try:
            answer = await sent
        except PeerError as error:
            return self._without_holder(verb, str(error))
        generation = self._engine.cluster.snapshot.generation
        return Answer(verb, Outcome.FORWARDED, answer, generation, detail=f"forwarded to {holder}")

    def _is_silent(self, holder: str) -> bool:
        one = self._silence
        return one is not None and one.holder == holder and self._timer() < one.until_s

    def _silence_of(self, holder: str) -> _Silence:
        """From now on; the end of calls that were sent side by side counts once."""
        before, now_s, pause_s = self._silence, self._timer(), SILENT_S
        if before is not None and before.holder == holder:
            if now_s < before.until_s:
                return before
            pause_s = min(2 * before.pause_s, MOST_SILENT_S)
        return _Silence(holder, pause_s, now_s + pause_s)

    def _without_holder(self, verb: Verb, why: str) -> Answer:
        detail = f"{Reason.NO_HOLDER.value}: {why}"
        return self._engine.failure(verb, Reason.NO_HOLDER, detail)
