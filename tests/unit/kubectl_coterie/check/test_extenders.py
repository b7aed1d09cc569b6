"""The extender's pods and answer, the node plugin's pods, and the Leases."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from kubectl_coterie.check.extenders import check_extender, check_leases
from kubectl_coterie.cluster import Read
from tests.unit.kubectl_coterie.check.looks import (
    EXTENDER,
    NOW_S,
    PLUGIN,
    audit,
    look,
    no_right,
    states,
)

PULLS = replace(EXTENDER, pod="b", is_ready=False, waits="ImagePullBackOff: no such image")


def test_a_ready_extender_says_what_it_knows():
    """The sums are those of the read API."""
    assert states(check_extender(look())) == [
        ("ok", "1 of 1 pods of the extender are ready"),
        ("ok", "ready: 1 nodes, 8 GPUs, 1 pods placed, 0 wait"),
    ]


@pytest.mark.parametrize(
    ("seen", "state", "about"),
    [
        pytest.param(
            look(programs=Read((EXTENDER, PULLS))),
            "warning",
            "1 of 2 pods of the extender are ready, not pod coterie-system/b "
            "(ImagePullBackOff: no such image)",
            id="one replica",
        ),
        pytest.param(
            look(programs=Read((replace(EXTENDER, is_ready=False),))),
            "failed",
            "0 of 1 pods of the extender are ready, not pod coterie-system/coterie-scheduler-a",
            id="none",
        ),
    ],
)
def test_pods_that_are_not_ready_are_named(seen, state, about):
    """With what the kubelet says they wait for."""
    first = next(iter(check_extender(seen)))
    assert (first.state.value, first.about) == (state, about)
    assert first.todo.startswith("kubectl -n coterie-system describe pod ")


def test_state_that_is_not_fresh_fails():
    """Then filter answers errors, and GPU pods wait."""
    last = list(check_extender(look(sums={"is_ready": False})))[-1]
    assert last.state.value == "failed"


def test_no_extender_is_a_warning():
    """As with a reporter alone, which begins so."""
    (finding,) = check_extender(look(programs=Read((PLUGIN,)), cluster=no_right("pods")))
    assert (finding.state.value, finding.about) == (
        "warning",
        "no extender was found in the cluster; whether one runs elsewhere is not known",
    )


@pytest.mark.parametrize(
    ("seen", "nodes"),
    [
        pytest.param(audit(), "1 node", id="one"),
        pytest.param(
            audit(
                programs=Read(
                    tuple(
                        replace(PLUGIN, node=name, settings={"mode": "reporter"}) for name in "ab"
                    )
                )
            ),
            "2 nodes",
            id="two",
        ),
    ],
)
def test_audit_mode_is_no_fault(seen, nodes):
    """Reporters alone were installed on purpose."""
    assert states(check_extender(seen)) == [
        ("ok", f"audit mode: reporter on {nodes}, nothing is placed")
    ]


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(audit(pods=no_right("pods")), id="an extender may be out of sight"),
        pytest.param(audit(programs=Read((PLUGIN,))), id="the plugin serves GPUs"),
        pytest.param(audit(policies=look().policies), id="an extender is installed without pods"),
        pytest.param(audit(programs=Read(())), id="nothing is there"),
    ],
)
def test_what_is_not_surely_audit_mode_is_a_warning(seen):
    """A lost extender must not look like one that was never meant."""
    assert [finding.state.value for finding in check_extender(seen)] == ["warning"]


def test_an_extender_that_may_not_be_read_is_not_known():
    """Which right is missing is in the sentence."""
    seen = look(programs=no_right("pods"), cluster=no_right("pods/portforward"))
    assert states(check_extender(seen)) == [("not known", no_right("pods").missing)]
    last = list(check_extender(look(cluster=no_right("pods/portforward"))))[-1]
    assert last.state.value == "not known"
    assert "pods/portforward" in last.about


def test_an_extender_by_its_address_needs_no_pod():
    """With --extender-url there may be none."""
    assert [finding.state.value for finding in check_extender(look(programs=Read(())))] == ["ok"]


def lease(age_s, *, holder="extender-0", renewed=True):
    """A Lease of 15 s that was renewed so long ago."""
    at = datetime.fromtimestamp(NOW_S - age_s, UTC).isoformat()
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15}
    return Read({"spec": spec | ({"renewTime": at} if renewed else {})})


@pytest.mark.parametrize(
    ("read", "state", "words"),
    [
        (lease(3), "ok", "extender-0 leads"),
        (lease(19), "ok", "leads"),
        (lease(21), "failed", "was renewed 21 s ago by extender-0, and has expired"),
        (lease(1, holder=""), "failed", "has no leader"),
        (lease(1, renewed=False), "failed", "has no leader"),
        (Read({"spec": {"renewTime": "yesterday"}}), "failed", "expected RFC 3339"),
        (Read(missing="not found", is_absent=True), "failed", "none has led yet"),
        (no_right("leases"), "not known", "cannot list resource"),
    ],
)
def test_a_lease_must_be_held_and_renewed(read, state, words):
    """Only its holder binds."""
    (finding,) = check_leases(look(leases={"coterie-system/coterie-extender": read}))
    assert finding.state.value == state
    assert words in finding.about


def test_without_a_lease_there_is_nothing_to_say():
    """One replica alone has none."""
    assert list(check_leases(look())) == []
