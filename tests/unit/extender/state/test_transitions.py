"""The ledger's rules, read off the transition table."""

from __future__ import annotations

import pytest

from extender.state import DeviceState
from extender.state.transitions import OWNED, TRANSITIONS, DeviceEvent

BAD = {state: state.name.endswith("UNHEALTHY") for state in DeviceState}


@pytest.mark.parametrize("state", DeviceState)
@pytest.mark.parametrize("event", [DeviceEvent.SICKEN, DeviceEvent.RECOVER])
def test_health_is_never_illegal(state, event):
    """A node's report must always be taken, else a bad GPU could be handed out."""
    assert BAD[TRANSITIONS[state, event]] is (event is DeviceEvent.SICKEN)


@pytest.mark.parametrize("event", [DeviceEvent.CLAIM, DeviceEvent.ASSUME])
def test_only_free_healthy_devices_are_given_away(event):
    """Rule 2: nobody gets a device that somebody has, or that is bad."""
    from_states = {state for state, one in TRANSITIONS if one is event}
    allowed = {DeviceState.FREE}
    if event is DeviceEvent.ASSUME:
        allowed.add(DeviceState.CLAIMED)
    assert from_states == allowed


@pytest.mark.parametrize("state", [state for state in DeviceState if state in OWNED])
def test_release_ends_every_ownership_and_keeps_the_health(state):
    """Rule 5: a pod's end is never refused, and a bad GPU does not heal by it."""
    after = TRANSITIONS[state, DeviceEvent.RELEASE]
    assert after is (DeviceState.UNHEALTHY if BAD[state] else DeviceState.FREE)


@pytest.mark.parametrize("state", DeviceState)
def test_what_is_wins_over_what_was_meant(state):
    """Rule 6: a hold is legal in every state and ends in a hold of the same health."""
    after = TRANSITIONS[state, DeviceEvent.HOLD]
    assert after is (DeviceState.HELD_UNHEALTHY if BAD[state] else DeviceState.HELD)


def test_only_assumptions_expire():
    """Rule 4: the clock ends no claim, no bound plan and no hold."""
    expiring = {state for state, event in TRANSITIONS if event is DeviceEvent.EXPIRE}
    assert expiring == {DeviceState.ASSUMED, DeviceState.ASSUMED_UNHEALTHY}


def test_bad_and_good_states_mirror_each_other():
    """Health is independent: events of ownership do the same on a bad device as on a good one."""
    good = {
        (state, event): after
        for (state, event), after in TRANSITIONS.items()
        if state in {DeviceState.ASSUMED, DeviceState.BOUND, DeviceState.HELD}
        and event not in {DeviceEvent.SICKEN, DeviceEvent.RECOVER}
    }
    bad_of = {
        DeviceState.FREE: DeviceState.UNHEALTHY,
        **{s: DeviceState[f"{s.name}_UNHEALTHY"] for s in (DeviceState.ASSUMED, DeviceState.BOUND)},
        DeviceState.HELD: DeviceState.HELD_UNHEALTHY,
    }
    for (state, event), after in good.items():
        assert TRANSITIONS[bad_of[state], event] is bad_of[after]
