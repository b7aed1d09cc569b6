"""What the plugin knows of its node, note by note."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plugin.allocation import (
    Allocation,
    AllocationBasis,
    Ambiguous,
    DeviceRequest,
    NodeState,
    Requester,
    UnknownRequester,
)
from plugin.allocation.node_state import ExpectedAllocate
from plugin.kubelet import KubeletSnapshot
from plugin.kubelet.pod_resources import PodDevices
from plugin.pods import unlisted_pod
from tests.unit.plugin.node_states import requester, simulated_served, snapshot, state
from tests.unit.plugin.node_values import (
    GPU,
    MIG,
    NODE,
    app,
    holding,
    instances,
    node_pod,
    replicas,
)

A = node_pod("a", app("main", 2), plan={"main": ("GPU-0", "GPU-1")})
B = node_pod("b", app("main", 1), plan={"main": ("GPU-2",)})
UNKNOWN_POD = UnknownRequester("no pod is known")


def request(available="GPU-0 GPU-1 GPU-2 GPU-3", size=1) -> DeviceRequest:
    """A question of the kubelet."""
    return DeviceRequest(GPU, frozenset(available.split()), frozenset(), size)


def best(*ids: str) -> Allocation:
    """An answer with these ids."""
    return Allocation(ids, AllocationBasis.BEST)


# --- Looks -----------------------------------------------------------------------------------


def test_a_look_replaces_the_last_one():
    """The kubelet is the truth."""
    known = state()
    known.see(snapshot(A, holdings=[holding(A, "main", "GPU-0", has_uid=False)]))
    known.see(snapshot(B, holdings=[holding(B, "main", "GPU-2", has_uid=False)]))
    assert known.pods == (B,)
    assert known.holdings == (holding(B, "main", "GPU-2"),)
    assert known.active == frozenset({("default", "b")})


def test_a_look_without_devices_keeps_those_that_are_known():
    """Devices in use must not look free; who is active is not known any more."""
    known = state()
    held = (holding(A, "main", "GPU-0", has_uid=False),)
    known.see(snapshot(A, holdings=held))
    assert known.knows_holdings
    again = replace(A, uid="uid-another")
    known.see(KubeletSnapshot((A, B), None, error="PodResources is silent"))
    assert known.pods == (A, B)
    assert known.holdings == (holding(A, "main", "GPU-0"),)
    assert known.active is None
    assert not known.knows_holdings
    known.see(KubeletSnapshot((again, B), None, error="PodResources is silent"))
    assert not known.holdings


def test_the_kubelets_record_stands_in_for_pod_resources():
    """It knows uids and init containers; equal holdings are one."""
    known = state()
    known.see(KubeletSnapshot((A,), None, (holding(A, "main", "GPU-0"),), "PodResources is silent"))
    assert known.knows_holdings
    assert known.holdings == (holding(A, "main", "GPU-0"),)
    describe_requirement = [holding(A, "main", "GPU-0", has_uid=False)]
    known.see(snapshot(A, holdings=describe_requirement, recorded=[holding(A, "main", "GPU-0")]))
    assert known.holdings == (holding(A, "main", "GPU-0"),)


def test_a_look_that_began_earlier_changes_nothing():
    """Looks for the report and for a question may overtake each other."""
    known = state()
    known.see(snapshot(A, B, number=2))
    known.see(snapshot(A, number=1))
    assert [*(known.pods or ())] == [A, B]
    known.see(snapshot(B, number=3))
    assert [*(known.pods or ())] == [B]


def test_what_is_given_again_came_back_meanwhile():
    """Else grants would pile up where the kubelet cannot be looked at."""
    known = state()
    known.record_grant(GPU, ["GPU-0", "GPU-1"], requester(A))
    known.record_grant(GPU, ["GPU-1"], UNKNOWN_POD)
    known.record_grant(GPU, ["GPU-1"], UNKNOWN_POD)
    assert [one.ids for one in known.grants] == [("GPU-1",)]
    known.record_grant(GPU, ["GPU-2"], requester(A))
    known.record_grant(GPU, ["GPU-2", "GPU-3"], requester(A))
    assert [one.ids for one in known.grants][1:] == [("GPU-2",), ("GPU-2", "GPU-3")]


def test_refused_pods_are_forgotten_when_they_are_gone():
    """A Job whose pods fail in a loop makes many."""
    known = state()
    known.record_refusal(requester(A))
    known.see(snapshot(A))
    assert known.view(is_fresh=True).refused == {"uid-a"}
    known.see(snapshot(B))
    assert not known.view(is_fresh=True).refused


def test_devices_of_no_listed_pod_are_left_out():
    """PodResources was read later: such a pod has just come or gone."""
    known = state()
    known.see(snapshot(A, listed=(A, B), holdings=[holding(B, "main", "GPU-2", has_uid=False)]))
    assert known.holdings == ()


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_kubelet_that_lists_ended_pods_does_not_show_which_are_active(phase):
    """Before 1.34 PodResources lists them, so that a rejected pod would pass for an active one."""
    known = state()
    ended = replace(B, phase=phase)
    known.see(snapshot(A, ended))
    assert known.active is None
    known.see(snapshot(A, ended, listed=(A,)))
    assert known.active == frozenset({("default", "a")})


# --- Looks without the kubelet's pods ----------------------------------------------------------


def blind(*recorded, listed=(), has_devices=True):
    """A look that brings no pods; PodResources lists those that are recorded, and others."""
    names = frozenset((one.namespace, one.name) for one in (*recorded, *listed))
    devices = PodDevices(names, ()) if has_devices else None
    return KubeletSnapshot(None, devices, tuple(recorded) if has_devices else None, "no /pods")


def test_before_a_look_and_after_one_without_pods_the_plugin_is_blind():
    """No plan can be known."""
    known = state()
    assert known.is_blind
    known.see(snapshot(A))
    assert not known.is_blind
    known.see(blind(has_devices=False))
    assert (known.is_blind, known.kubelet_error, known.knows_holdings) == (True, "no /pods", False)
    assert known.pods == (A,)


def test_without_pods_what_is_held_is_known_of_old_and_of_new_pods():
    """The old ones with their plans; those that PodResources no longer lists are gone."""
    known = state()
    known.see(snapshot(A, B))
    new = node_pod("new", app("main", 1))
    held = (holding(A, "main", "GPU-0", "GPU-1"), holding(new, "main", "GPU-3"))
    known.see(blind(*held))
    assert known.knows_holdings
    assert known.holdings == held
    assert list(known.pods or ()) == [A, unlisted_pod("uid-new", "default", "new")]
    known.see(blind(*held))
    assert list(known.pods or ()) == [A, unlisted_pod("uid-new", "default", "new")]
    known.see(blind(listed=(A,)))
    assert list(known.pods or ()) == [A]


def test_without_pods_a_new_pod_takes_the_place_of_one_with_its_name():
    """A StatefulSet makes them: what the old one lacks does not matter."""
    known = state()
    known.see(snapshot(A))
    again = replace(A, uid="uid-again")
    known.see(blind(holding(again, "main", "GPU-0")))
    assert known.pods == (unlisted_pod("uid-again", "default", "a"),)


def test_without_pods_a_grant_is_kept_until_a_pod_holds_it():
    """As after a look at the pods."""
    known = state()
    known.record_grant(GPU, ["GPU-0"], requester(A))
    known.record_grant(GPU, ["GPU-1"], UNKNOWN_POD)
    before = known.grants
    known.record_grant(GPU, ["GPU-2"], requester(B))
    known.see(blind(holding(A, "main", "GPU-0"), holding(B, "main", "GPU-2")), since=before)
    assert [one.ids for one in known.grants] == [("GPU-1",), ("GPU-2",)]


# --- What was given --------------------------------------------------------------------------


def test_what_a_pod_was_given_is_known_until_it_is_gone():
    """PodResources leaves init containers out: only we know what they have."""
    known = state()
    known.record_grant(GPU, ["GPU-1", "GPU-0"], requester(A))
    (grant,) = known.view(is_fresh=True).grants
    assert grant == holding(A, "main", "GPU-0", "GPU-1")
    known.see(snapshot(A, B))
    assert known.view(is_fresh=True).grants == (grant,)
    known.see(KubeletSnapshot((B,), None, error="PodResources is silent"))
    assert known.view(is_fresh=True).grants == (grant,)
    known.see(snapshot(B))
    assert not known.view(is_fresh=True).grants


def test_a_look_that_began_before_a_grant_does_not_end_it():
    """A look for the report may still be under way when a pod is admitted that it has not seen."""
    known = state()
    before = known.grants
    known.record_grant(GPU, ["GPU-0"], requester(A))
    known.see(snapshot(B), since=before)
    assert known.grants == (holding(A, "main", "GPU-0"),)
    known.see(snapshot(B), since=known.grants)
    assert not known.grants


def test_a_grant_to_an_unknown_pod_is_kept_until_a_pod_holds_it():
    """Then PodResources says whose it is."""
    known = state()
    known.record_grant(GPU, ["GPU-0", "GPU-1"], UNKNOWN_POD)
    (grant,) = known.view(is_fresh=True).grants
    assert (grant.uid, grant.namespace, grant.name, grant.container) == (None, "", "", "")
    known.see(snapshot(A, holdings=[holding(A, "main", "GPU-0", has_uid=False)]))
    assert known.view(is_fresh=True).grants == (grant,)
    known.see(snapshot(A, holdings=[holding(A, "main", "GPU-0", "GPU-1", has_uid=False)]))
    assert not known.view(is_fresh=True).grants


def test_an_answer_is_expected_back_once_in_any_order():
    """The kubelet takes the answer in random order, and calls again for the next container."""
    known = state()
    answer = best("GPU-0", "GPU-1")
    known.expect_allocate(GPU, answer, requester(A))
    assert known.expected(GPU, ("GPU-1", "GPU-0")) == ExpectedAllocate(requester(A), answer)
    assert known.expected(GPU, ("GPU-1", "GPU-0")) is None


def test_an_answer_is_to_be_chosen_again_after_a_change_of_its_devices_or_the_machine():
    """A link may have gone down since."""
    known = state()
    again = ExpectedAllocate(requester(A), None)
    known.expect_allocate(GPU, best("GPU-0"), requester(A))
    known.serve(replace(known.served))
    assert known.expected(GPU, ("GPU-0",)) == again
    known.expect_allocate(GPU, best("GPU-0"), requester(A))
    known.set_unhealthy({"GPU-0": "lost"})
    assert known.expected(GPU, ("GPU-0",)) == again
    known.expect_allocate(GPU, best("GPU-1"), requester(A))
    assert known.expected(GPU, ("GPU-1",)) == ExpectedAllocate(requester(A), best("GPU-1"))


def test_an_allocate_makes_other_expectations_of_its_resource_stale():
    """The kubelet allocates for one container after another; other resources are other calls."""
    known = state()
    known.expect_allocate(GPU, best("GPU-0"), requester(A))
    known.expect_allocate(MIG, best("M0-0"), requester(B))
    assert known.expected(GPU, ("GPU-3",)) is None
    assert known.expected(GPU, ("GPU-0",)) is None
    assert known.expected(MIG, ("M0-0",)) is not None


def test_a_pod_that_got_an_error_is_passed_over():
    """It is over for good; where the requester is unknown, no pod is."""
    known = state()
    known.record_refusal(requester(A))
    known.record_refusal(UNKNOWN_POD)
    known.record_refusal(Ambiguous((requester(B),)))
    assert known.view(is_fresh=True).refused == {"uid-a"}


def test_a_registration_begins_a_new_page():
    """What was given before belongs to a kubelet that has forgotten it or knows it better."""
    known = state()
    known.see(snapshot(A))
    known.record_grant(GPU, ["GPU-0"], requester(A))
    known.expect_allocate(GPU, best("GPU-1"), requester(A))
    known.record_refusal(requester(B))
    assert known.view(is_fresh=True).preexisting == frozenset()
    known.begin_registration()
    view = known.view(is_fresh=True)
    assert view.grants == ()
    assert view.refused == frozenset()
    assert view.preexisting == {"uid-a"}
    assert known.expected(GPU, ("GPU-1",)) is None


def test_steady_devices_were_well_ever_since_the_registration():
    """The kubelet may have missed that a device came back, so that it proves nothing."""
    known = state()
    known.set_unhealthy({"GPU-0": "XID 79", "GPU-1": "lost"})
    known.set_unhealthy({"GPU-1": "lost"})
    assert known.view(is_fresh=True).always_healthy == {"GPU-2", "GPU-3"}
    known.begin_registration()
    assert known.view(is_fresh=True).always_healthy == {"GPU-0", "GPU-2", "GPU-3"}


# --- Supply ----------------------------------------------------------------------------------


def supply(
    known: NodeState,
    wanted: DeviceRequest | None = None,
    own: Requester = UNKNOWN_POD,
    place=0,
    *,
    is_fresh=False,
):
    """What can be given of a resource."""
    resource = list(known.resources)[place]
    asked = replace(wanted or request(), resource=resource)
    return known.supply(asked, own, known.view(is_fresh=is_fresh))


@pytest.mark.parametrize("is_fresh", [True, False])
def test_held_is_what_the_kubelet_does_not_offer(is_fresh):
    """Whoever has it, and whether or not the kubelet was read for the request; not a bad device."""
    known = state()
    known.see(snapshot(A, B, holdings=[holding(A, "main", "GPU-0", has_uid=False)]))
    known.set_unhealthy({"GPU-3": "XID 79"})
    found = supply(known, request("GPU-2"), requester(B), is_fresh=is_fresh)
    assert (found.held, found.unhealthy) == ({"GPU-0", "GPU-1"}, {"GPU-3"})
    known.set_unhealthy({"GPU-0": "XID 79"})
    assert "GPU-0" in supply(known, request("GPU-2"), is_fresh=is_fresh).held


def test_what_the_kubelet_has_lost_count_of_is_held_and_its_gpu_is_busy():
    """Only a list read for the request shows it; what a possible requester has is its own."""
    known = state(replicas(2, "G0", "G1"))
    known.see(snapshot(A, B, holdings=[holding(A, "main", "G0::0", has_uid=False)]))
    offered = request("G0::0 G0::1 G1::0 G1::1")
    found = supply(known, offered, requester(B), is_fresh=True)
    assert (found.held, found.busy_gpus, found.unhealthy) == ({"G0::0"}, {"G0"}, frozenset())
    assert supply(known, offered, requester(B)).held == frozenset()
    one, other = requester(A), requester(B)
    for own in (one, Ambiguous((other, one))):
        assert supply(known, offered, own, is_fresh=True).held == frozenset()


def test_gpus_are_busy_by_what_is_held_or_was_given():
    """Of any resource; what the kubelet calls available is free, whatever we remember."""
    known = state(replicas(2, "G0", "G1"), instances(1, 1, 1, 1))
    known.see(snapshot(A, B, holdings=[holding(A, "main", "G0::0", has_uid=False)]))
    known.record_grant(MIG, ["M2-0"], requester(B))
    known.record_grant(MIG, ["M3-0"], requester(B))
    assert supply(known, request("G1::0 M3-0")).busy_gpus == {"G0", "G2"}


def test_only_the_base_resource_is_rated():
    """The topology that is published is of its devices."""
    stock = simulated_served()
    two = replace(stock.inventory, resources=(*stock.inventory.resources, instances(1)))
    known = NodeState(NODE, replace(stock, inventory=two))
    assert supply(known).machine is stock.machine is not None
    assert supply(known, place=1).machine is None


def test_devices_of_other_pods_are_held_where_seen_or_granted():
    """A pod's own is handed on; what an unknown requester was given counts for none."""
    known = state()
    known.see(snapshot(A, B, holdings=[holding(A, "main", "GPU-0", "GPU-1", has_uid=False)]))
    known.record_grant(GPU, ["GPU-2"], requester(B))
    known.record_grant(GPU, ["GPU-3"], UnknownRequester("unknown"))
    every = ["GPU-1", "GPU-2", "GPU-3"]
    seen, given = holding(A, "main", "GPU-1"), holding(B, "main", "GPU-2")
    assert known.held_by_others(GPU, every, UnknownRequester("")) == (seen, given)
    assert known.held_by_others(GPU, every, requester(A)) == (given,)
    assert known.held_by_others(GPU, ["GPU-3"], requester(A)) == ()
    assert known.held_by_others(MIG, every, requester(A)) == ()
