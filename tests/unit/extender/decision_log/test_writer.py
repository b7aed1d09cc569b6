"""The decision log and its replay."""

from __future__ import annotations

import io
import json
import random

import pytest
from pydantic_core import to_jsonable_python

from extender.bind import HoldBind, ReadPod, WriteBinding
from extender.decision_log import DecisionLog
from extender.decision_log.format import (
    EventLine,
    line_of,
    output_of,
    read_event,
    read_lines,
)
from extender.decision_log.replay import Replayed, replay
from extender.engine import Gateway, make_engine
from extender.engine.events import BindAbandoned, PodDeleted, VerbCalled
from extender.errors import DecisionLogError
from extender.protocol import Verb
from tests.cluster.control.decision_log import written_plans
from tests.unit.extender.engines import RULES, bind_at_once, see_cluster, spec
from tests.unit.extender.pods import args, binding, pod

CLUSTER = spec({"count": 3, "machine": "dgx-1-v100"}, {"count": 2, "machine": "8x-l4"})


def recorded(n_runs: int = 1) -> list[str]:
    """The lines of a log: pods come and go, and some requests are garbage."""
    file = io.StringIO()
    for run in range(n_runs):
        rng = random.Random(run)  # noqa: S311 - seeded, to repeat
        log = DecisionLog(file, RULES, on_end=print)
        gateway = Gateway(make_engine(RULES), record=log.record)
        see_cluster(gateway, CLUSTER)

        def call(verb: Verb, body: bytes, at_s: float, gateway: Gateway = gateway) -> bytes:
            return gateway.handle(VerbCalled(verb, body, at_s)).body

        nodes = list(gateway.cluster.snapshot.nodes)
        for i in range(25):
            uid = f"u{i}"
            body = args(pod(rng.choice((1, 2, 4, 8)), uid=uid), nodes)
            fitting = json.loads(call(Verb.FILTER, body, i))["NodeNames"]
            call(Verb.PRIORITIZE, body, i)
            if fitting:
                bind_at_once(gateway, binding(uid, rng.choice(fitting)), i + 0.5)
            gateway.handle(PodDeleted(f"u{rng.randrange(i + 1)}"))
        call(Verb.FILTER, b"\xff{", 99.0)
        call(Verb.PRIORITIZE, b"{}", 99.0)
    return file.getvalue().splitlines()


def test_the_checks_on_real_clusters_find_each_plan(tmp_path):
    """They read the lines as they are, and not by what wrote them."""
    lines = recorded()
    log = tmp_path / "log"
    log.write_text("\n".join(lines) + "\n")
    found = list(written_plans(log))
    written = [
        one for one in map(json.loads, lines) if (one.get("output") or {}).get("annotations")
    ]
    assert [one["uid"] for one in found] == [one["output"]["uid"] for one in written]
    assert all(one["planned_from"]["free"] and one["node"] for one in found)
    assert len(found) > 5


def count_answers(lines: list[str]) -> int:
    """How many of them hold an answer."""
    return sum(json.loads(line).get("output") is not None for line in lines)


def calls(lines: list[str]) -> list[str]:
    """The calls alone."""
    return [line for line in lines if json.loads(line).get("name") == "VerbCalled"]


def test_a_replay_answers_byte_for_byte():
    """Also garbage, and also over a restart in the middle of the file."""
    lines = recorded(n_runs=2)
    found = replay(lines)
    assert found == Replayed(count_answers(lines), None)
    assert found.n_calls > 100


def changed(line: str, part: str = "", **fields: object) -> str:
    """A line with other fields, or with other fields of a part of it."""
    content = json.loads(line)
    content |= {part: content[part] | fields} if part else fields
    return json.dumps(content)


@pytest.mark.parametrize(
    ("what", "fields"),
    [
        ("body", {"body": '{"Error":"other"}'}),
        ("outcome", {"outcome": "refused"}),
        ("generation", {"generation": 999}),
    ],
)
def test_the_first_difference_is_shown(what, fields):
    """By line, by what differs, and with both texts."""
    lines = recorded()
    first, second = (lines.index(line) for line in calls(lines)[1:3])
    lines[first] = changed(lines[first], "output", **fields)
    lines[second] = changed(lines[second], "output", **fields)
    difference = replay(lines).difference
    assert difference is not None
    assert (difference.line, difference.what) == (first + 1, what)
    assert difference.recorded == str(next(iter(fields.values())))
    assert difference.replayed != difference.recorded


def test_a_log_of_nothing_replays_to_nothing():
    """An extender that was never called leaves a header only."""
    assert replay(recorded()[:1]) == Replayed(0, None)


@pytest.mark.parametrize("n_left", [0, 2, 9])
def test_a_line_cut_by_a_crash_ends_its_run_only(n_left):
    """The run before and the run after are still compared, and the cut is reported."""
    lines, later = [f"{line}\n" for line in recorded()], recorded()
    cut = '{"kind":"event","name":"VerbCalled","inp'
    found = replay([*lines[: 1 + n_left], f"{cut}\n", *later])
    n_answers = count_answers(lines[: 1 + n_left])
    assert found == Replayed(n_answers + count_answers(later), None, (2 + n_left,))
    found = replay([*lines[: 1 + n_left], cut])
    assert found == Replayed(n_answers, None, (2 + n_left,))


def test_a_header_cut_by_a_crash_is_reported():
    """The extender died while it started."""
    lines = recorded()
    assert replay(['{"kind":"ru\n', *lines]) == Replayed(count_answers(lines), None, (1,))


def with_rule(line: str, name: str, value: object) -> str:
    """A header with another rule."""
    header = json.loads(line)
    header["rules"][name] = value
    return json.dumps(header)


@pytest.mark.parametrize(
    ("pick", "message"),
    [
        pytest.param(
            lambda lines: lines[1:], "line 1: expected a header first, not an event", id="no header"
        ),
        pytest.param(lambda _: [], "decision log is empty, expected a header", id="an empty file"),
        pytest.param(
            lambda _: ['{"ki'], "decision log is cut off, expected a header", id="half a header"
        ),
        pytest.param(lambda lines: [*lines[:2], "{\n"], "line 3 is '{\\n'", id="no JSON"),
        pytest.param(
            lambda lines: [*lines[:2], "{", lines[2]], "line 3 is '{'", id="no JSON before a call"
        ),
        pytest.param(
            lambda lines: [changed(lines[0], v=2)], "line 1: v is 2, expected 1", id="other version"
        ),
        pytest.param(
            lambda lines: [changed(lines[0], x=2)],
            "line 1: x is not a known key, its value is 2",
            id="an unknown field",
        ),
        pytest.param(
            lambda lines: [changed(lines[0], kind="walk")],
            "expected 'run', 'event' for 'kind'",
            id="another kind",
        ),
        pytest.param(lambda _: ["5"], "line 1: line is 5, expected an object", id="a number"),
        pytest.param(
            lambda lines: [lines[0], changed(calls(lines)[0], "input", verb="evict")],
            "line 2: input of VerbCalled: verb is 'evict', expected 'filter'",
            id="other verb",
        ),
        pytest.param(
            lambda lines: [lines[0], changed(calls(lines)[0], "input", body=None)],
            "input of VerbCalled: body is None, expected",
            id="no input",
        ),
        pytest.param(
            lambda lines: [lines[0], changed(calls(lines)[0], "input", body={"base64": "!"})],
            "input of VerbCalled: body",
            id="no base64",
        ),
        *(
            pytest.param(
                lambda lines, name=name, value=value: [with_rule(lines[0], name, value)],
                f"line 1: {message}",
                id=f"{name} {value}",
            )
            for name, value, message in (
                ("candidate_limit", -5, "rule candidate_limit is -5, expected 0 or more"),
                ("candidate_limit", "5", "rules.candidate_limit is '5', expected"),
                ("resources", [], "rule resources is (), expected different names, at least one"),
                ("loss_bounds", [0.3, 0.1], "rule loss_bounds is (0.3, 0.1), expected ascending"),
                ("loss_bounds", [2.0], "rule loss_bounds is (2.0,), expected ascending"),
                ("staleness_bound_s", -1, "rule staleness_bound_s is -1.0, expected a finite"),
                ("assume_s", 0, "rule assume_s is 0.0, expected a finite number above 0"),
                ("gpu_worth", [["h100", 0.0]], "rule gpu_worth is (('h100', 0.0),), expected reg"),
                ("gpu_worth", [["(", 1.0]], "rule gpu_worth is (('(', 1.0),), expected regular"),
                ("demand", {"sizes": [[2, -1.0]]}, "demand weight of size 2 is -1.0, expected"),
                ("demand", {"sizes": []}, "demand sizes are [], expected"),
                ("colour", "red", "rules.colour is 'red', expected"),
            )
        ),
    ],
)
def test_text_that_is_no_log_is_refused(pick, message):
    """By the line, and short."""
    with pytest.raises(DecisionLogError) as caught:
        replay(pick(recorded()))
    assert message in str(caught.value)


READ, HOLD = ReadPod(1, "ns", "p", "u1", "n1"), HoldBind(1, "ns", "p", "u1", "n1")
WRITE = WriteBinding(1, "ns", "p", "u1", "7", "n1", {"a": "b"})


@pytest.mark.parametrize("step", [READ, HOLD, WRITE], ids=["read", "hold", "write"])
def test_a_step_that_is_abandoned_is_read_as_it_was(step):
    """A hold and a read have the same fields: a replay that took one for the other would differ."""
    event = BindAbandoned(step, "interrupted", 1.0)
    lines = [json.dumps({"kind": "run", "v": 1, "rules": to_jsonable_python(RULES)})]
    lines.append(json.dumps(line_of(event, None)))
    (_, (_, line)) = read_lines(lines)
    assert isinstance(line, EventLine)
    assert read_event(line) == event


def test_steps_that_are_requested_differ_in_the_log():
    """Whatever their fields are."""
    assert output_of(READ) != output_of(HOLD)
