"""The closed set of refusals."""

from __future__ import annotations

import pytest

from extender.protocol import MAY_PASS, TAKEN, Outlook, Reason, WirePod, parse_pod
from tests.unit.extender.pods import GPU, container, pod
from topology.select import UnfitReason


def requested(*sizes: int, **annotations: str):
    """The request of a pod with a container of each size."""
    made = pod(**annotations)
    made["spec"]["containers"] = [container(f"c{i}", n) for i, n in enumerate(sizes)]
    return parse_pod(WirePod.model_validate(made), (GPU,))


@pytest.mark.parametrize("unfit", UnfitReason)
def test_what_the_core_refuses_has_the_same_name_and_sentence(unfit):
    """A reason that the core gains must not become a KeyError on the request path."""
    reason = Reason[unfit.name]
    if reason is not Reason.TOO_FEW_GPUS:
        assert reason.value == unfit.value


def test_too_few_gpus_is_said_of_the_pod():
    """Nine containers of one GPU each request less than the node has, the pod more."""
    assert Reason.TOO_FEW_GPUS.value == "node has fewer GPUs than the pod requests"


@pytest.mark.parametrize("reason", Reason)
def test_reasons_are_constant_sentences_with_advice(reason):
    """No number, no name: text that varied would requeue the pod for ever."""
    assert not any(c.isdigit() or c in "{}%" for c in reason.value)
    assert reason.row.advice


def test_whether_a_reason_may_pass_is_in_its_name():
    """For want of a set, so that pods may be evicted: `_TAKEN`; never and unknown do not pass."""
    assert {one for one in Reason if one.name.endswith("_TAKEN")} == TAKEN
    assert {Reason.ALIGNMENT_APART, Reason.MIXED_MODELS, Reason.NOT_ENOUGH_FREE} <= MAY_PASS
    assert not [one for one in MAY_PASS if one.name.endswith(("_NEVER", "_UNKNOWN"))]


OF_TABLES = [
    one
    for one in Reason
    if one in MAY_PASS or one.row.outlook in {Outlook.NEVER, Outlook.UNKNOWN, Outlook.GROUP}
]


@pytest.mark.parametrize("reason", OF_TABLES)
def test_what_tables_show_is_short(reason):
    """A cell of the table of pods, of every reason that nodes and groups have."""
    assert len(reason.short(requested(4, affinity="pcie-switch").shape)) <= 35


@pytest.mark.parametrize(
    ("reason", "affinity", "lacks"),
    [
        (Reason.AFFINITY_NEVER, "nvlink", "no NVLink set of 4"),
        (Reason.AFFINITY_NEVER, "pcie-switch", "no set of 4 below one PCIe switch"),
        (Reason.AFFINITY_NEVER, "numa", "no set of 4 in one NUMA node"),
        (Reason.TOO_FEW_GPUS, None, "fewer than 6 GPUs"),
        (Reason.NIC_NEVER, None, "no set of 4 near an RDMA NIC"),
        (Reason.BANDWIDTH_NEVER, None, "no set of 4 that is fast enough"),
        (
            Reason.ALIGNMENT_NEVER,
            None,
            "no NUMA nodes for a set of 4, as the kubelet's policy wants them",
        ),
        (Reason.NOT_ENOUGH_FREE, None, None),
    ],
)
def test_what_a_machine_never_has(reason, affinity, lacks):
    """Sets are of a container; the whole pod's GPUs are only counted."""
    annotations = {} if affinity is None else {"affinity": affinity}
    assert reason.lacks(requested(4, 2, **annotations)) == lacks


@pytest.mark.parametrize(
    "reason", [one for one in Reason if one.row.outlook is Outlook.NEVER], ids=str
)
def test_what_never_fits_says_what_is_lacking(reason):
    """A row without it would show an empty cell."""
    assert reason.lacks(requested(4, affinity="numa"))
