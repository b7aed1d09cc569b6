"""Who has which GPU, from the extender or from the node's report."""

from __future__ import annotations

from dataclasses import replace

from kubectl_coterie.machine import GpuOwner, owners_in_answer, owners_in_report
from topology.annotations import DeviceHold, DevicesReport, UnhealthyDevice
from topology.recordings import load_recording


def machine(*, has_ids=True):
    """Four GPUs, with or without ids."""
    topology = load_recording("4x-l40s")
    gpus = (
        replace(gpu, uuid=f"GPU-{i}" if has_ids else None) for i, gpu in enumerate(topology.gpus)
    )
    return replace(topology, gpus=tuple(gpus))


def entry(*gpus):
    """The read API's entry of a node."""
    return {"gpus": [{"reason": None, "pod": None, **gpu} for gpu in gpus]}


def test_the_answer_is_matched_by_id():
    """The extender's order may be another; what it does not name is unknown."""
    answer = entry(
        {"id": "GPU-2", "state": "held", "pod": "ml/a"},
        {"id": "GPU-0", "state": "free"},
        {"id": "GPU-1", "state": "unhealthy", "reason": "XID 79"},
    )
    assert owners_in_answer(answer, machine()) == (
        GpuOwner(is_free=True, pod=None, state="free"),
        GpuOwner(is_free=False, pod=None, state="unhealthy", reason="XID 79"),
        GpuOwner(is_free=False, pod="ml/a", state="held"),
        GpuOwner(),
    )


def test_without_ids_the_place_counts():
    """As in a topology that was written by hand."""
    answer = entry({"id": "x", "state": "free"}, {"id": "y", "state": "held", "pod": "ml/a"})
    found = owners_in_answer(answer, machine(has_ids=False))
    assert [owner.state for owner in found] == ["free", "held", None, None]


def test_the_report_names_some():
    """Pods without a plan and unhealthy GPUs; of others nothing is known."""
    hold = DeviceHold("u", "ml", "a", "main", "nvidia.com/gpu", ("GPU-0", "GPU-1"))
    report = DevicesReport(holds=(hold,), unhealthy=(UnhealthyDevice("GPU-3", "XID 79"),))
    assert owners_in_report(report, machine()) == (
        GpuOwner(is_free=False, pod="ml/a", state="held"),
        GpuOwner(is_free=False, pod="ml/a", state="held"),
        GpuOwner(),
        GpuOwner(is_free=False, pod=None, state=None, reason="XID 79"),
    )
