"""The account of devices: whole operations, refusals, and a model that it must agree with."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from extender.state import Applied, DeviceState, Ledger, Refused
from extender.state.ledger import Holding
from extender.state.transitions import OWNED, DeviceEvent


@pytest.fixture
def ledger() -> Ledger:
    """Two nodes of four devices."""
    ledger = Ledger()
    for node in ("n1", "n2"):
        ledger.add_node(node, tuple(f"{node}-{i}" for i in range(4)))
    return ledger


def of(ledger: Ledger, node: str) -> list[str]:
    """The states of a node's devices by name."""
    return [state.value for _, state, _ in ledger.states(node)]


def test_a_bind_runs_from_assumed_to_bound_to_free(ledger):
    """The normal life of a pod."""
    assert ledger.assume("p", "n1", ("n1-2", "n1-0"), deadline_s=10.0) == Applied(("n1",))
    assert ledger.holding("p") == Holding("p", "n1", ("n1-0", "n1-2"), 10.0)
    assert ledger.free_mask("n1") == 0b1010
    assert ledger.confirm("p") == Applied(("n1",))
    assert ledger.holding("p") == Holding("p", "n1", ("n1-0", "n1-2"), None)
    assert of(ledger, "n1") == ["bound", "free", "bound", "free"]
    assert ledger.release("p") == Applied(("n1",))
    assert (ledger.free_mask("n1"), ledger.n_pods, ledger.holding("p")) == (0b1111, 0, None)


def test_confirming_twice_changes_nothing(ledger):
    """A watch may deliver the same event again; the generation must not move for it."""
    ledger.assume("p", "n1", ("n1-0",), deadline_s=1.0)
    ledger.confirm("p")
    before = ledger.generation
    assert ledger.confirm("p") == Applied(())
    assert ledger.generation == before


def test_assumptions_expire_at_their_deadline(ledger):
    """A bind that nobody confirmed must not keep GPUs for ever."""
    ledger.assume("early", "n1", ("n1-0",), deadline_s=5.0)
    ledger.assume("late", "n1", ("n1-1",), deadline_s=9.0)
    ledger.assume("bound", "n1", ("n1-2",), deadline_s=5.0)
    ledger.confirm("bound")
    assert ledger.expire(4.9) == ()
    assert ledger.expire(5.0) == ("early",)
    assert of(ledger, "n1") == ["free", "assumed", "bound", "free"]


def test_the_own_claim_becomes_the_plan_and_leftovers_are_free(ledger):
    """A nominated pod may be planned on other devices than were kept for it."""
    ledger.claim("p", "n1", ("n1-0", "n1-1"))
    assert isinstance(ledger.assume("p", "n1", ("n1-1", "n1-2"), deadline_s=1.0), Applied)
    assert of(ledger, "n1") == ["free", "assumed", "assumed", "free"]


def test_a_claim_on_another_node_is_let_go(ledger):
    """The scheduler may bind elsewhere than it nominated; both nodes changed."""
    ledger.claim("p", "n1", ("n1-0",))
    assert ledger.assume("p", "n2", ("n2-0",), deadline_s=1.0) == Applied(("n1", "n2"))
    assert of(ledger, "n1") == ["free"] * 4


def test_forgetting_a_claim_frees_it(ledger):
    """A nomination may be withdrawn."""
    ledger.claim("p", "n1", ("n1-0",))
    assert ledger.forget("p") == Applied(("n1",))
    assert ledger.free_mask("n1") == 0b1111


def test_what_the_kubelet_gave_replaces_the_plan(ledger):
    """The ledger follows what is: the planned device is free, the held one is not."""
    ledger.assume("p", "n1", ("n1-0", "n1-1"), deadline_s=1.0)
    ledger.confirm("p")
    assert ledger.hold("p", "n1", ("n1-1", "n1-2")) == Applied(("n1",))
    assert of(ledger, "n1") == ["free", "held", "held", "free"]
    assert ledger.holding("p") == Holding("p", "n1", ("n1-1", "n1-2"))


def test_a_hold_takes_devices_from_another_plan(ledger):
    """Two pods never own one device, even where the kubelet broke a plan."""
    ledger.assume("planned", "n1", ("n1-0", "n1-1"), deadline_s=1.0)
    ledger.assume("small", "n1", ("n1-2",), deadline_s=1.0)
    applied = ledger.hold("real", "n1", ("n1-1", "n1-2"))
    assert applied == Applied(("n1",), ("planned", "small"))
    assert ledger.holding("planned") == Holding("planned", "n1", ("n1-0",), 1.0)
    assert ledger.holding("small") is None


def test_bad_devices_are_not_free_and_return_when_they_recover(ledger):
    """Health decides what may be given away, not what a running pod has."""
    ledger.assume("p", "n1", ("n1-0",), deadline_s=1.0)
    assert ledger.sicken("n1", ("n1-0", "n1-1")) == Applied(("n1",))
    assert of(ledger, "n1") == ["assumed_unhealthy", "unhealthy", "free", "free"]
    assert ledger.free_mask("n1") == 0b1100
    assert ledger.sicken("n1", ("n1-1",)) == Applied(())
    ledger.release("p")
    assert ledger.recover("n1", ("n1-0", "n1-1")) == Applied(("n1",))
    assert ledger.free_mask("n1") == 0b1111


def test_a_claim_on_a_bad_device_is_dropped(ledger):
    """Nobody should wait for a GPU that cannot be given."""
    ledger.claim("p", "n1", ("n1-0", "n1-1"))
    assert ledger.sicken("n1", ("n1-0",)) == Applied(("n1",), ("p",))
    assert ledger.holding("p") == Holding("p", "n1", ("n1-1",))


def test_a_node_that_goes_takes_its_pods_with_it(ledger):
    """Their devices are gone; a stale record would keep them planned for ever."""
    ledger.assume("p", "n1", ("n1-0",), deadline_s=1.0)
    ledger.assume("q", "n2", ("n2-0",), deadline_s=1.0)
    assert ledger.remove_node("n1") == Applied(("n1",), ("p",))
    assert ledger.remove_node("n1") == Applied(())
    assert (ledger.free_mask("n1"), ledger.states("n1")) == (0, ())
    assert [one.uid for one in ledger.holdings()] == ["q"]


@pytest.mark.parametrize(
    ("call", "subject", "state", "event"),
    [
        pytest.param(
            lambda x: x.assume("q", "n1", ("n1-1", "n1-0"), deadline_s=1.0),
            "n1-0",
            "assumed",
            DeviceEvent.ASSUME,
            id="a device of another pod",
        ),
        pytest.param(
            lambda x: x.claim("q", "n1", ("n1-0",)),
            "n1-0",
            "assumed",
            DeviceEvent.CLAIM,
            id="a claim on a device of another pod",
        ),
        pytest.param(
            lambda x: x.assume("q", "n1", ("n1-3",), deadline_s=1.0),
            "n1-3",
            "unhealthy",
            DeviceEvent.ASSUME,
            id="a bad device",
        ),
        pytest.param(
            lambda x: x.assume("p", "n1", ("n1-1",), deadline_s=1.0),
            "p",
            "assumed",
            DeviceEvent.ASSUME,
            id="a second plan for one pod",
        ),
        pytest.param(
            lambda x: x.assume("q", "n9", ("n9-0",), deadline_s=1.0),
            "n9",
            "unknown",
            DeviceEvent.ASSUME,
            id="an unknown node",
        ),
        pytest.param(
            lambda x: x.sicken("n1", ("n2-0",)),
            "n2-0",
            "unknown",
            DeviceEvent.SICKEN,
            id="a device of another node",
        ),
        pytest.param(
            lambda x: x.hold("q", "n1", ("n1-1", "n1-1")),
            "n1",
            "known",
            DeviceEvent.HOLD,
            id="one device named twice",
        ),
        pytest.param(
            lambda x: x.assume("q", "n1", (), deadline_s=1.0),
            "n1",
            "known",
            DeviceEvent.ASSUME,
            id="no device at all",
        ),
        pytest.param(
            lambda x: x.confirm("q"), "q", "unknown", DeviceEvent.CONFIRM, id="an unknown pod"
        ),
        pytest.param(
            lambda x: x.forget("b"),
            "n1-2",
            "bound",
            DeviceEvent.FORGET,
            id="forgetting a bound pod",
        ),
    ],
)
def test_illegal_operations_name_subject_state_and_event_and_change_nothing(
    ledger, call, subject, state, event
):
    """A refused operation must be diagnosable, and atomic."""
    ledger.assume("p", "n1", ("n1-0",), deadline_s=1.0)
    ledger.assume("b", "n1", ("n1-2",), deadline_s=1.0)
    ledger.confirm("b")
    ledger.sicken("n1", ("n1-3",))
    before = (ledger.generation, ledger.states("n1"), ledger.holdings())
    refused = call(ledger)
    assert isinstance(refused, Refused)
    assert (refused.subject, refused.state, refused.event) == (subject, state, event)
    assert subject in refused.detail
    assert (ledger.generation, ledger.states("n1"), ledger.holdings()) == before


@pytest.mark.parametrize(
    ("node", "ids"),
    [pytest.param("n1", ("x",), id="known node"), pytest.param("n3", ("x", "x"), id="id twice")],
)
def test_a_node_is_opened_once_with_different_devices(ledger, node, ids):
    """The feed that does otherwise is broken, and must hear of it."""
    with pytest.raises(ValueError, match="expected a new node with different device ids"):
        ledger.add_node(node, ids)


NODES = {"n1": 3, "n2": 2}
PODS = ("p", "q", "r")
IDS = {node: tuple(f"{node}-{i}" for i in range(n)) for node, n in NODES.items()}


class LedgerMachine(RuleBasedStateMachine):
    """Any operations in any order, compared with a plain dictionary of owners."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.owner: dict[str, str] = {}
        self.bad: set[str] = set()

    @initialize()
    def open(self):
        """Open the accounts."""
        for node, ids in IDS.items():
            self.ledger.add_node(node, ids)

    places = st.sampled_from(sorted(NODES)).flatmap(
        lambda node: st.tuples(
            st.just(node),
            st.lists(st.sampled_from(IDS[node]), min_size=1, unique=True),
        )
    )

    def take(self, uid, ids):
        """What the model expects of an operation that gave exactly these ids to a pod."""
        self.owner = {one: who for one, who in self.owner.items() if who != uid}
        self.owner |= dict.fromkeys(ids, uid)

    @rule(uid=st.sampled_from(PODS), place=places, now=st.integers(0, 9))
    def assume(self, uid, place, now):
        """A plan takes free, healthy devices, or the pod's own claim."""
        node, ids = place
        if isinstance(self.ledger.assume(uid, node, ids, deadline_s=now), Applied):
            assert all(self.owner.get(one, uid) == uid for one in ids)
            assert not self.bad & set(ids)
            self.take(uid, ids)

    @rule(uid=st.sampled_from(PODS), place=places)
    def claim(self, uid, place):
        """A claim takes free, healthy devices for a pod that has none."""
        node, ids = place
        if isinstance(self.ledger.claim(uid, node, ids), Applied):
            assert not any(one in self.owner for one in ids)
            assert uid not in self.owner.values()
            self.take(uid, ids)

    @rule(uid=st.sampled_from(PODS), place=places)
    def hold(self, uid, place):
        """A hold is always taken."""
        node, ids = place
        assert isinstance(self.ledger.hold(uid, node, ids), Applied)
        self.take(uid, ids)

    @rule(uid=st.sampled_from(PODS))
    def confirm(self, uid):
        """Confirming moves no device."""
        self.ledger.confirm(uid)

    @rule(uid=st.sampled_from(PODS), is_release=st.booleans())
    def end(self, uid, is_release):
        """A pod's end frees all it had; forgetting does so only before it is bound."""
        ended = self.ledger.release(uid) if is_release else self.ledger.forget(uid)
        if isinstance(ended, Applied):
            self.owner = {one: who for one, who in self.owner.items() if who != uid}
        elif is_release:
            assert uid not in self.owner.values()

    @rule(now=st.integers(0, 9))
    def expire(self, now):
        """The clock ends assumptions."""
        for uid in self.ledger.expire(now):
            self.owner = {one: who for one, who in self.owner.items() if who != uid}

    @rule(place=places)
    def sicken(self, place):
        """Claims on bad devices are dropped, everything else stays."""
        node, ids = place
        before = {one: state for one, state, _ in self.ledger.states(node)}
        assert isinstance(self.ledger.sicken(node, ids), Applied)
        self.bad |= set(ids)
        for one in ids:
            if before[one] is DeviceState.CLAIMED:
                del self.owner[one]

    @rule(place=places)
    def recover(self, place):
        """Recovery moves no device."""
        node, ids = place
        assert isinstance(self.ledger.recover(node, ids), Applied)
        self.bad -= set(ids)

    @invariant()
    def agrees_with_the_model(self):
        """No device has two owners, and every view of the account tells the same."""
        rows = [row for node in NODES for row in self.ledger.states(node)]
        assert {one: who for one, _, who in rows if who is not None} == self.owner
        owned = [one for held in self.ledger.holdings() for one in held.ids]
        assert Counter(owned) == Counter(self.owner.keys())
        assert all((state in OWNED) == (who is not None) for _, state, who in rows)
        assert {one for one, state, _ in rows if "UNHEALTHY" in state.name} == self.bad
        states = Counter(state for _, state, _ in rows)
        assert all(n == states[state] for state, n in self.ledger.counts.items())
        for node in NODES:
            free = [state is DeviceState.FREE for _, state, _ in self.ledger.states(node)]
            assert self.ledger.free_mask(node) == sum(1 << i for i, x in enumerate(free) if x)


LedgerMachine.TestCase.settings = settings(stateful_step_count=30, max_examples=60)
TestLedgerMachine = LedgerMachine.TestCase
