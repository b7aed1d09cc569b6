"""Routes bind and preempt on a live cluster: executed here, or forwarded to the Lease's holder.

Where several replicas run, a call is forwarded at most once. Everything ends within the time that
the scheduler waits.
"""

from __future__ import annotations

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

    async def bind(self, body: bytes, forwarded: ForwardedCall | None = None) -> TimedAnswer:
        """Answer a bind call."""
        return await self._here_or_there(Verb.BIND, body, forwarded, self._bind.bind)

    async def preempt(self, body: bytes, forwarded: ForwardedCall | None = None) -> TimedAnswer:
        """Answer a preempt call."""
        return await self._here_or_there(Verb.PREEMPT, body, forwarded, self._preempt.preempt)

    async def read_pod(self, namespace: str, name: str) -> bytes | None:
        """The JSON of a pod; None where it is not there. Raises `KubeError`."""
        pod = await self._api.get_pod(namespace, name)
        return None if pod is None else pod.body

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
            return await here(body, at_most_s=min(left_s, replicas.left_s))
        holder = replicas.other_holder
        if holder is None or forwarded is not None:
            detail = f"{Reason.NO_HOLDER.value}: request received by {replicas.identity}"
            return TimedAnswer(self._engine.failure(verb, Reason.NO_HOLDER, detail), 0.0)
        try:
            answer = await self._peers.peer.forward(holder, verb.value, body, timeout_s=left_s)
        except PeerError as error:
            detail = f"{Reason.NO_HOLDER.value}: {error}"
            return TimedAnswer(self._engine.failure(verb, Reason.NO_HOLDER, detail), 0.0)
        generation = self._engine.cluster.snapshot.generation
        detail = f"forwarded to {holder}"
        return TimedAnswer(Answer(verb, Outcome.FORWARDED, answer, generation, detail=detail), None)
