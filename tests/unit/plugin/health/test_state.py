"""Health: what is marked, for how long, and that nothing bad is ever called healthy."""

from __future__ import annotations

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.health import HealthState
from plugin.health.state import MAX_QUIET_S
from plugin.machine import NO_ANSWER, EventKind, GpuEvent, Partition, Remedy
from plugin.nvidia.xids import XidRules, read_xid_rules
from tests.unit.plugin.machine_values import device, mig_device, xid_event
from topology.annotations import LastingFault

A, B = "GPU-a", "GPU-b"
LOST = "lost"


def mig(uuid: str, index: int, *, ci: int = 0) -> Partition:
    """A MIG instance whose GPU instance is one above its index."""
    return mig_device(uuid, "1g.10gb", index, index + 1, ci)


WHOLE = (device(A, 0, A), device(B, 1, B))
SHARED = tuple(device(f"{uuid}::{n}", 0, uuid, replica=n) for uuid in (A, B) for n in range(3))
SPLIT = (
    device("MIG-0", 0, A, partition=mig("MIG-0", 0)),
    device("MIG-0::1", 0, A, partition=mig("MIG-0", 0), replica=1),
    device("MIG-1", 0, A, partition=mig("MIG-1", 1)),
    device("MIG-1b", 0, A, partition=mig("MIG-1b", 1, ci=1)),
    device(B, 1, B),
)


def xid(code: int, uuid: str | None = A, gi: int | None = None, ci: int = 0) -> GpuEvent:
    """An XID event."""
    return xid_event(uuid, code, None if gi is None else (gi, ci))


def fresh(**facts) -> HealthState:
    """A machine without known faults, under NVIDIA's own rules unless the test says otherwise."""
    return HealthState(**{"rules": XidRules(), **facts})


def ids(state: HealthState, devices=WHOLE) -> set[str]:
    """The devices that are unhealthy."""
    return set(state.unhealthy(devices))


def after(state: HealthState, *steps) -> HealthState:
    """Let events and polls happen, each with its time; None in place of faults is silence."""
    for now_s, step in steps:
        if isinstance(step, GpuEvent):
            state = state.after_event(step, now_s)
        elif step is None:
            state = state.after_no_response("silent")
        else:
            state = state.after_poll(step, now_s)
    return state


# --- what is marked ---


@pytest.mark.parametrize(
    ("event", "devices", "marked"),
    [
        pytest.param(xid(48), WHOLE, {A}, id="a GPU"),
        pytest.param(xid(9999), WHOLE, {A}, id="an XID that is in no catalogue"),
        pytest.param(xid(31), WHOLE, set(), id="an application's error"),
        pytest.param(xid(48, "GPU-c"), WHOLE, set(), id="a GPU that is not served"),
        pytest.param(xid(48, None), WHOLE, {A, B}, id="an unknown GPU: all"),
        pytest.param(xid(48, None, 1, 0), SPLIT, {d.id for d in SPLIT}, id="unknown GPU, known GI"),
        pytest.param(xid(48), SHARED, {f"{A}::{n}" for n in range(3)}, id="every replica"),
        pytest.param(xid(48, A, 1, 0), SPLIT, {"MIG-0", "MIG-0::1"}, id="an instance's replicas"),
        pytest.param(xid(48, A, 2, 1), SPLIT, {"MIG-1b"}, id="one of two compute instances"),
        pytest.param(xid(48, A, 7, 0), SPLIT, set(), id="an instance that is not served"),
        pytest.param(xid(48), SPLIT, {d.id for d in SPLIT[:4]}, id="a GPU with all its instances"),
        pytest.param(xid(48, A, 1, 0), WHOLE, {A}, id="an instance of a GPU that is served whole"),
        pytest.param(GpuEvent(EventKind.ECC, A), WHOLE, set(), id="ECC events are noted only"),
        pytest.param(GpuEvent(EventKind.LOST_EVENTS), WHOLE, set(), id="lost events: poll"),
    ],
)
def test_events_mark_what_they_are_about(event, devices, marked):
    """Too few marks start a pod on a bad GPU, too many idle good ones."""
    state = fresh()
    assert ids(state.after_event(event, 0.0), devices) == marked
    assert state == fresh()  # the old state is as it was


def test_rules_decide_which_xids_count():
    """The two variables of NVIDIA's plugin reach the state."""
    state = fresh(rules=read_xid_rules("48", "31"))
    assert [state.counts(xid(code)) for code in (48, 31, 79)] == [False, True, True]
    assert ids(state.after_event(xid(48), 0)) == set()
    assert ids(state.after_event(xid(31), 0)) == {A}


def test_checks_that_are_off_see_nothing():
    """With health checks off every GPU is offered, as from NVIDIA's plugin."""
    state = fresh(rules=read_xid_rules("all"))
    assert after(state, (0, xid(79)), (1, {A: LOST}), (2, None)) == state


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        pytest.param([xid(94)], "XID 94, until its program is gone and it stays quiet", id="app"),
        pytest.param([xid(63)], "XID 63, until it stays quiet", id="no action"),
        pytest.param([xid(95)], "XID 95, until it is reset", id="reset"),
        pytest.param([xid(79)], "XID 79, until the node restarts", id="node"),
        pytest.param([xid(9999)], "XID 9999, until the plugin restarts", id="unknown XID"),
        pytest.param([xid(95, None)], "XID 95 of an unknown GPU, until it stays quiet", id="GPU ?"),
        pytest.param([xid(79), {A: LOST}], LOST, id="what is polled comes first"),
        pytest.param([xid(79), {A: LOST}, None], "silent", id="before it the whole machine"),
        pytest.param([xid(94), xid(79)], "XID 79, until the node restarts", id="graver, later"),
        pytest.param([xid(79), xid(94)], "XID 79, until the node restarts", id="graver, before"),
        pytest.param([xid(48), xid(95)], "XID 48, until it is reset", id="the first of equals"),
        pytest.param(
            [xid(94, None), xid(48, A, 1, 0), xid(79, A, 1, 1)],
            "XID 79, until the node restarts",
            id="the gravest of several marks",
        ),
        pytest.param(
            [xid(95, A, 1, 0), xid(48, A, 1, 1)],
            "XID 48, until it is reset",
            id="then the lower XID",
        ),
        pytest.param(
            [xid(48, None), xid(48)],
            "XID 48 of an unknown GPU, until it stays quiet",
            id="then the one of an unknown GPU",
        ),
    ],
)
def test_reasons_name_the_xid_and_the_end(steps, reason):
    """It stands in the node's report, where a person decides by it what to do."""
    state = after(fresh(), *((0, step) for step in steps))
    assert state.unhealthy(WHOLE)[A] == reason


# --- how it ends ---


@pytest.mark.parametrize(
    ("steps", "is_well_at"),
    [
        pytest.param([(0, xid(94))], 60, id="app error: after the quiet time"),
        pytest.param([(0, xid(63))], 60, id="no action: after the quiet time"),
        pytest.param([(0, xid(94)), (50, xid(94))], 110, id="again: quiet time again"),
        pytest.param([(0, xid(94)), (50, {A: LOST})], 110, id="lost in between: again"),
        pytest.param([(0, xid(94)), (50, {B: LOST})], 60, id="another GPU does not matter"),
        pytest.param([(0, xid(94)), (50, xid(94, B))], 60, id="nor does another's XID"),
        pytest.param([(0, xid(94)), (50, xid(31))], 60, id="nor one that does not count"),
        pytest.param([(0, xid(95))], None, id="reset: never without one"),
        pytest.param([(0, xid(95)), (9, {A: LOST})], 69, id="reset: seen, then quiet"),
        pytest.param([(0, {A: LOST}), (9, xid(95))], None, id="reset: not one from before"),
        pytest.param([(0, xid(119)), (9, {A: NO_ANSWER})], None, id="reset: late is not reset"),
        pytest.param(
            [(0, xid(95)), (9, {A: LOST}), (14, {A: NO_ANSWER})], 74, id="reset: seen, then late"
        ),
        pytest.param([(0, xid(95)), (9, {B: LOST})], None, id="reset: not another's"),
        pytest.param(
            [(0, xid(95)), (9, {A: LOST}), (20, xid(48))], None, id="reset: a new one after each"
        ),
        pytest.param(
            [(0, xid(95)), (9, {A: LOST}), (20, xid(94))], 80, id="reset: seen, then app error"
        ),
        pytest.param(
            [(0, xid(94)), (9, {A: LOST}), (20, xid(95))], None, id="reset: lost too early"
        ),
        pytest.param([(0, xid(79))], None, id="node: never"),
        pytest.param([(0, xid(79)), (9, {A: LOST})], None, id="node: not by answering again"),
        pytest.param([(0, xid(79)), (9, xid(94))], None, id="node: a lesser one changes nothing"),
        pytest.param([(0, xid(9999))], None, id="unknown: never"),
        pytest.param([(0, xid(79, None))], 60, id="of an unknown GPU: after the quiet time"),
        pytest.param([(0, xid(94, A, 1, 0))], 60, id="an instance: as a GPU"),
        pytest.param([(0, xid(95, A, 1, 0)), (9, {A: LOST})], 69, id="an instance: GPU reset"),
        pytest.param([(0, {A: LOST})], 1, id="lost: until it answers"),
        pytest.param([(0, None)], 1, id="silence: until a poll is answered"),
    ],
)
def test_marks_end_as_the_table_says(steps, is_well_at):
    """Recovery without a restart, and none where nothing shows it."""
    state = after(fresh(), *steps)
    assert A in ids(state)
    begin = int(steps[-1][0]) + 1
    well = []
    for now_s in range(begin, 500):
        state = state.after_poll({}, now_s)
        if A not in ids(state):
            well.append(now_s)
    expected = [] if is_well_at is None else list(range(is_well_at, 500))
    assert well == expected


def test_a_mark_needs_a_poll_to_end():
    """Time alone proves nothing: the GPU has to answer."""
    state = after(fresh(), (0, xid(94)), (1e6, xid(31)), (1e6, None))
    assert ids(state) == {A, B}
    assert ids(state.after_poll({}, 1e6)) == set()


def test_the_quiet_time_can_be_set():
    """Where programs are short, GPUs are wanted back sooner."""
    state = after(fresh(quiet_s=5), (0, xid(94)), (4.9, {}))
    assert ids(state) == {A}
    assert ids(state.after_poll({}, 5.0)) == set()
    assert ids(after(fresh(quiet_s=0), (0, xid(94)), (0, {A: LOST}))) == {A}
    assert ids(after(fresh(quiet_s=0), (0, xid(94)), (0, {}))) == set()


def test_the_quiet_time_doubles_with_each_mark_up_to_an_hour():
    """A GPU that breaks under every program must not take pod after pod down."""
    state, now_s, quiet = fresh(), 0.0, []
    for _ in range(9):
        state, begin_s = state.after_event(xid(94), now_s), now_s
        while A in ids(state):
            now_s += 10
            state = state.after_poll({}, now_s)
        quiet.append(now_s - begin_s)
    assert quiet == [60, 120, 240, 480, 960, 1920, MAX_QUIET_S, MAX_QUIET_S, MAX_QUIET_S]
    assert ids(after(state, (now_s, xid(94, B)), (now_s + 60, {}))) == set()  # B begins at 60 s


def test_a_quiet_time_above_the_cap_is_kept():
    """The cap is for doubling, not for what is set."""
    state = after(fresh(quiet_s=2 * MAX_QUIET_S), (0, xid(94)))
    assert ids(state.after_poll({}, 1.5 * MAX_QUIET_S)) == {A}
    assert ids(state.after_poll({}, 2 * MAX_QUIET_S)) == set()


def test_many_marks_do_not_overflow():
    """A year of errors is 10,000 doublings."""
    state = fresh()
    for n in range(1200):
        state = after(state, (n * 1e4, xid(94)), (n * 1e4 + MAX_QUIET_S, {}))
    assert ids(state) == set()


# --- properties ---

GPUS = tuple(f"GPU-{n}" for n in range(4))
DEVICES = tuple(
    device(f"{gpu}-{index}::{n}", place, gpu, partition=mig(f"{gpu}-{index}", index), replica=n)
    for place, gpu in enumerate(GPUS)
    for index in range(2)
    for n in range(2)
)
codes = st.sampled_from([31, 48, 63, 79, 94, 95, 9999])
events = st.builds(
    xid,
    codes,
    st.sampled_from([*GPUS, None]),
    st.sampled_from([None, 1, 2]),
    st.sampled_from([0, 1]),
)
polls = st.dictionaries(st.sampled_from(GPUS), st.just(LOST))
steps = st.one_of(events, polls, st.none())
histories = st.lists(st.tuples(st.floats(0, 200), steps), max_size=25)


def played(history) -> tuple[HealthState, float]:
    """The state after a history of (seconds since the step before, step), and the time then."""
    now_s, timed = 0.0, []
    for gap_s, step in history:
        now_s += gap_s
        timed.append((now_s, step))
    return after(fresh(), *timed), now_s


@given(histories, polls)
def test_what_is_at_fault_is_never_healthy(history, faults):
    """Whatever happened before, a GPU that does not answer must not be given away."""
    state, now_s = played(history)
    unhealthy = ids(state.after_poll(faults, now_s + 1e6), DEVICES)
    assert {d.id for d in DEVICES if d.gpu.uuid in faults} <= unhealthy


@given(histories, st.permutations(GPUS), st.lists(codes, min_size=4, max_size=4), st.floats(0, 99))
def test_the_order_of_unrelated_events_does_not_matter(history, order, xids, gap_s):
    """Two GPUs that fail together come through the driver's queue in any order."""
    state, now_s = played(history)
    code_of = dict(zip(GPUS, xids, strict=True))
    ends = [
        reduce(lambda b, gpu: b.after_event(xid(code_of[gpu], gpu), now_s + gap_s), gpus, state)
        for gpus in (GPUS, order)
    ]
    assert ends[0] == ends[1]


@given(histories, st.lists(codes, max_size=4), st.randoms(use_true_random=False))
def test_the_order_of_one_gpu_s_events_does_not_change_its_end(history, xids, random):
    """Which XID came first may change the reason, never the remedy or the time."""
    state, now_s = played(history)
    shuffled = random.sample(xids, len(xids))
    ends = [after(state, *((now_s, xid(code)) for code in order)) for order in (xids, shuffled)]
    summaries = [
        {part: (m.remedy, m.quiet_since_s, m.was_reset) for part, m in end.marks.items()}
        for end in ends
    ]
    assert summaries[0] == summaries[1]
    assert ends[0].n_marks == ends[1].n_marks


@given(histories)
def test_nothing_is_unhealthy_without_a_cause(history):
    """A GPU that no counting event, poll or silence was about stays in service."""
    is_all = any(
        step is None or (isinstance(step, GpuEvent) and not step.uuid) for _, step in history
    )
    named = {step.uuid for _, step in history if isinstance(step, GpuEvent)}
    named |= {gpu for _, step in history if isinstance(step, dict) for gpu in step}
    unhealthy = played(history)[0].unhealthy(DEVICES)
    assert is_all or {d.gpu.uuid for d in DEVICES if d.id in unhealthy} <= named


@given(histories)
def test_only_what_needs_a_person_stays_for_ever(history):
    """Without news and with every GPU answering, all other marks end within the longest time."""
    state, now_s = played(history)
    state = state.after_poll({}, now_s + MAX_QUIET_S)
    for part, mark in state.marks.items():
        assert part.gpu is not None
        assert mark.remedy.rank >= Remedy.RESET_GPU.rank
        assert not (mark.remedy is Remedy.RESET_GPU and mark.was_reset)


@given(histories)
def test_grave_marks_never_end(history):
    """A restart of the node, or an unknown remedy, is nothing that the state can see happen."""
    parts = {
        step.uuid
        for _, step in history
        if isinstance(step, GpuEvent)
        and step.uuid
        and step.code is not None
        and XidRules.remedy_of(step.code.number).rank >= Remedy.RESTART_NODE.rank
    }
    state, now_s = played(history)
    assert parts <= {part.gpu for part in state.after_poll({}, now_s + 1e9).marks}


# --- faults that come and go ---


def test_a_fault_that_comes_again_must_stay_away():
    """A GPU that answers late now and then must not enter and leave the list at each poll."""
    state = after(fresh(quiet_s=60), (0, {A: LOST}))
    assert ids(state) == {A}
    state = after(state, (5, {}))
    assert ids(state) == set()  # it may have been reset
    state = after(state, (10, {A: LOST}), (15, {}))
    assert ids(state) == {A}
    assert state.unhealthy(WHOLE) == {A: LOST}
    assert ids(after(state, (69, {}))) == {A}
    assert ids(after(state, (70, {}))) == set()
    state = after(state, (70, {}), (80, {A: LOST}), (85, {}))
    assert ids(after(state, (199, {}))) == {A}  # the quiet time has doubled
    assert ids(after(state, (200, {}))) == set()


def test_a_fault_that_lasts_is_one_fault():
    """However often it is polled."""
    state = after(fresh(), *((now_s, {A: LOST}) for now_s in range(0, 600, 5)), (600, {}))
    assert ids(state) == set()


def test_an_old_fault_is_forgotten():
    """One an hour is no pattern."""
    state = after(fresh(), (0, {A: LOST}), (5, {}), (MAX_QUIET_S + 5, {}))
    assert state == fresh()
    assert ids(after(state, (MAX_QUIET_S + 10, {A: LOST}), (MAX_QUIET_S + 15, {}))) == set()


# --- marks that outlive the process ---


def test_marks_that_a_later_process_must_know():
    """Those that only a reset or a restart of the node clears, of a GPU that is known."""
    events = [xid(94), xid(9999, "GPU-c"), xid(79, None), xid(95, B, 2, 0), xid(79, B), xid(48)]
    state = after(fresh(), *((0, event) for event in events))
    assert state.lasting() == (
        LastingFault(A, "XID", 48),
        LastingFault(B, "XID", 79),
        LastingFault(B, "XID", 95, (2, 0)),
    )
    restored = fresh().with_lasting(state.lasting(), 10)
    assert restored.lasting() == state.lasting()
    assert restored.unhealthy(WHOLE) == {
        A: "XID 48, until it is reset",
        B: "XID 79, until the node restarts",
    }
    assert after(restored, (0, {A: LOST}), (3, {})).lasting() == state.lasting()[1:]


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        pytest.param([xid(9999), xid(48)], 48, id="behind an unknown remedy"),
        pytest.param([xid(48), xid(9999)], 48, id="before an unknown remedy"),
        pytest.param([xid(48), xid(9999), xid(79)], 79, id="the graver of two that last"),
        pytest.param([xid(79), xid(9999), xid(48)], 79, id="the graver of two, earlier"),
        pytest.param([xid(48), xid(9999), {A: LOST}], None, id="a reset was seen"),
        pytest.param([xid(48), {A: LOST}, xid(79)], 79, id="a reset is no restart of the node"),
        pytest.param([xid(79), {A: LOST}], 79, id="a restart of the node, and the GPU was lost"),
        pytest.param([xid(9999)], None, id="an unknown remedy alone"),
    ],
)
def test_no_mark_hides_one_that_lasts(steps, code):
    """An upgrade of the plugin must not offer a GPU that only a reset or a restart clears."""
    state = after(fresh(), *((0, step) for step in steps))
    assert state.lasting() == (() if code is None else (LastingFault(A, "XID", code),))


def test_what_is_known_already_is_not_marked_again():
    """A second mark would double the quiet time."""
    state = after(fresh(), (5, xid(48)))
    assert state.with_lasting([LastingFault(A, "XID", 94)], 10) == state


def test_a_lesser_mark_is_no_reason_to_drop_what_an_earlier_process_knew():
    """An event may come before the Node can be read."""
    state = after(fresh(), (5, xid(94))).with_lasting([LastingFault(A, "XID", 48)], 10)
    assert state.lasting() == (LastingFault(A, "XID", 48),)
    assert state.n_marks == after(fresh(), (5, xid(94))).n_marks


def test_a_mark_whose_code_counts_no_longer_is_dropped():
    """Settings may have changed with the restart."""
    lasting = [LastingFault(A, "XID", 48)]
    assert fresh(rules=read_xid_rules("48")).with_lasting(lasting, 0).marks == {}
