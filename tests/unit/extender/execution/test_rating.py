"""What calls had no time to rate is rated between them."""

from __future__ import annotations

import asyncio

from extender.engine import Gateway
from extender.execution import rate_deferred
from extender.placement import RatingBudget
from extender.protocol import Verb
from tests.unit.extender.engines import engine, names
from tests.unit.extender.pods import args, pod


def test_what_is_due_is_rated_one_by_one_and_others_have_their_turn():
    """A request that comes meanwhile waits for one rating at most."""
    one = engine()
    one.answer(Verb.FILTER, args(pod(4), names(one)), 0.0, RatingBudget.of_states(0))
    seen: list[int] = []

    async def main():
        task = asyncio.create_task(rate_deferred(Gateway(one)))
        while one.n_deferred:
            seen.append(one.n_deferred)
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not task.done()
        task.cancel()

    asyncio.run(main())
    assert seen == [2, 1]
