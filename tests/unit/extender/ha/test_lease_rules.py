"""The rules of the Lease, and that no order of events gives it to two."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from extender.ha import Election
from extender.ha.lease_rules import Move, Term
from kube.objects import Lease

WALL = datetime(2026, 1, 1, tzinfo=UTC)
LATER = datetime(2026, 1, 2, tzinfo=UTC)
MINE = Lease("ns", "lease", "me", 15, WALL, WALL, 3, "7")
THEIRS = Lease("ns", "lease", "other", 20, WALL, WALL, 3, "7")


def election(lease: Lease | None, seen_s: float = 0.0) -> Election:
    """One that has seen this Lease."""
    made = Election("ns", "lease", identity="me", duration_s=15)
    made.see(lease, seen_s)
    return made


@pytest.mark.parametrize(
    ("lease", "now_s", "move"),
    [
        pytest.param(None, 0.0, Move.CREATE, id="there is none"),
        pytest.param(MINE, 100.0, Move.RENEW, id="mine, however old"),
        pytest.param(THEIRS, 19.9, Move.WAIT, id="theirs, for as long as it says it lasts"),
        pytest.param(THEIRS, 20.0, Move.TAKE, id="theirs, and not renewed"),
        pytest.param(
            Lease("ns", "lease", "", 1, WALL, WALL, 3, "7"), 0.0, Move.TAKE, id="given up"
        ),
        pytest.param(
            Lease("ns", "lease", "other", 0, None, None, 0, "7"),
            0.9,
            Move.WAIT,
            id="odd, but held",
        ),
    ],
)
def test_what_to_do(lease, now_s, move):
    """By what was read and when, never by the times in it."""
    assert election(lease).move(now_s) is move


def test_nothing_is_done_before_it_was_read():
    """Nor after another replica wrote it."""
    fresh = Election("ns", "lease", identity="me", duration_s=15)
    assert fresh.move(0.0) is Move.READ
    mine = election(MINE)
    mine.see_changed()
    assert mine.move(0.0) is Move.READ
    mine.see(MINE, 1.0)
    assert mine.move(1.0) is Move.RENEW


def test_a_lease_lasts_from_when_its_renewal_was_seen():
    """A Lease that is read again unchanged grows older, one that was renewed is young."""
    waiting = election(THEIRS)
    waiting.see(THEIRS, 15.0)
    assert waiting.move(20.0) is Move.TAKE
    waiting.see(Lease("ns", "lease", "other", 20, WALL, LATER, 3, "8"), 20.0)
    assert waiting.move(39.9) is Move.WAIT


def test_what_is_written():
    """With the version that was read; a new holder is another transition."""
    assert election(None).next_lease(LATER) == Lease("ns", "lease", "me", 15, LATER, LATER, 0)
    assert election(MINE).next_lease(LATER) == Lease("ns", "lease", "me", 15, WALL, LATER, 3, "7")
    assert election(THEIRS).next_lease(LATER) == Lease(
        "ns", "lease", "me", 15, LATER, LATER, 4, "7"
    )


def test_what_is_given_up():
    """Only what is ours; a Lease without a holder is free at once."""
    assert election(MINE).released(LATER) == Lease("ns", "lease", "", 1, WALL, LATER, 3, "7")
    assert election(THEIRS).released(LATER) is None
    assert election(None).released(LATER) is None


def test_a_term_is_counted_from_before_the_renewal():
    """When its answer came says nothing about when the others saw it."""
    assert Term.since(100.0, 15) == Term(110.0, 115.0)


def test_the_holder():
    """As far as was seen."""
    assert [election(one).holder for one in (None, MINE, THEIRS)] == ["", "me", "other"]
