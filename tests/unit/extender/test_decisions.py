"""The decision log and its replay."""

from __future__ import annotations

import io
import json
import random

import pytest

from extender.decisions import DecisionLog, Replayed, make_engine, replay
from extender.engine import Engine, Verb
from extender.errors import DecisionLogError
from tests.unit.extender.engines import RULES, spec
from tests.unit.extender.pods import args, binding, pod

CLUSTER = spec({"count": 3, "machine": "dgx-1-v100"}, {"count": 2, "machine": "8x-l4"})


def recorded(n_runs: int = 1) -> list[str]:
    """The lines of a log: pods come and go, and some requests are garbage."""
    file = io.StringIO()
    for run in range(n_runs):
        rng = random.Random(run)  # noqa: S311 - seeded, to repeat
        engine = make_engine(CLUSTER, RULES)
        log = DecisionLog(file, CLUSTER, engine)

        def call(
            verb: Verb,
            body: bytes,
            at_s: float,
            engine: Engine = engine,
            log: DecisionLog = log,
        ) -> bytes:
            answer = engine.answer(verb, body, at_s)
            log.record(verb, body, at_s, answer)
            return answer.body

        nodes = list(engine.cluster.snapshot.nodes)
        for i in range(25):
            uid = f"u{i}"
            body = args(pod(rng.choice((1, 2, 4, 8)), uid=uid), nodes)
            fitting = json.loads(call(Verb.FILTER, body, i))["NodeNames"]
            call(Verb.PRIORITIZE, body, i)
            if fitting:
                call(Verb.BIND, binding(uid, rng.choice(fitting)), i + 0.5)
            call(Verb.END, f"u{rng.randrange(i + 1)}".encode(), i + 0.7)
        call(Verb.FILTER, b"\xff{", 99.0)
        call(Verb.PRIORITIZE, b"{}", 99.0)
    return file.getvalue().splitlines()


def test_a_replay_answers_byte_for_byte():
    """Also garbage, and also over a restart in the middle of the file."""
    lines = recorded(n_runs=2)
    found = replay(lines)
    assert found == Replayed(len(lines) - 2, None)
    assert found.n_calls > 100


def changed(line: str, **fields: object) -> str:
    """A line with other fields."""
    return json.dumps(json.loads(line) | fields)


@pytest.mark.parametrize(
    ("what", "fields"),
    [
        ("answer", {"answer": '{"Error":"other"}'}),
        ("outcome", {"outcome": "refused"}),
        ("generation", {"generation": 999}),
    ],
)
def test_the_first_difference_is_shown(what, fields):
    """By line, by what differs, and with both texts."""
    lines = recorded()
    lines[2] = changed(lines[2], **fields)
    lines[5] = changed(lines[5], **fields)
    difference = replay(lines).difference
    assert difference is not None
    assert (difference.line, difference.what) == (3, what)
    assert difference.recorded == str(next(iter(fields.values())))
    assert difference.replayed != difference.recorded


def test_a_machine_that_changed_is_shown():
    """A recording may be corrected between two versions; then no answer can be expected to hold."""
    lines = recorded()
    header = json.loads(lines[0])
    header["machines"]["8x-l4"] = "0" * 8
    difference = replay([json.dumps(header), *lines[1:]]).difference
    assert difference is not None
    assert (difference.line, difference.what) == (1, "machines")


def test_a_log_of_nothing_replays_to_nothing():
    """An extender that was never asked leaves a header only."""
    assert replay(recorded()[:1]) == Replayed(0, None)


@pytest.mark.parametrize(
    ("pick", "message"),
    [
        pytest.param(
            lambda lines: lines[1:], "line 1 is a call, expected a header", id="no header"
        ),
        pytest.param(lambda lines: [*lines[:2], "{"], "line 3 is '{'", id="no JSON"),
        pytest.param(lambda lines: [changed(lines[0], v=2)], "line 1 is", id="another version"),
        pytest.param(lambda lines: [changed(lines[0], x=2)], "line 1 is", id="an unknown field"),
        pytest.param(
            lambda lines: [lines[0], changed(lines[1], verb="preempt")],
            "line 2 is",
            id="other verb",
        ),
    ],
)
def test_text_that_is_no_log_is_refused(pick, message):
    """By the line, and short."""
    with pytest.raises(DecisionLogError) as caught:
        replay(pick(recorded()))
    assert message in str(caught.value)
