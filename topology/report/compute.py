"""What the command line says about sets of a machine, computed.

What it answers: for a node and a question about its sets, the report (`topology.report.values`)
that the commands print; `topology.report.machine` reports the node itself. Everything in it comes
from the same public functions that the extender calls, so that a figure on the command line is the
figure that a pod is placed by. It prints nothing and reads no file.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from topology.annotations import DEFAULT_POLICY, Affinity, NicRule, PlacementPolicy, Strength
from topology.errors import InvalidRequest, UnknownDevice
from topology.model import REFERENCE_MESSAGE_BYTES
from topology.report.machine import machine_report
from topology.report.values import (
    SCHEMA_VERSION,
    BestReport,
    RankedReport,
    RankReport,
    RequestReport,
    RunnerUpReport,
    SelectedReport,
    UnfitReport,
    ValueReport,
)
from topology.select import (
    MachineTables,
    Selected,
    Unfit,
    build_machine,
    find_runner_up,
    select_set,
)
from topology.value import MAX_TABLE_GPUS, STATED_ERROR, Limit, gpus_of, mask_index, mask_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from topology.model import NodeTopology
    from topology.select import Machine

__all__ = [
    "BestQuery",
    "report_best",
    "report_rank",
    "report_value",
]

_ANY_SET = PlacementPolicy(affinity=Affinity.NONE)
"""Takes any set as it is, also one of mixed models."""
_LEAST_GBYTES_PER_S = 1e-6
"""A bound that every known value meets: with it a request shows whether the value is known."""


@dataclass(frozen=True, slots=True)
class BestQuery:
    """What `best` answers: a size and, of the node's GPUs, which are free and which must be in.

    `free` None means all of them.
    """

    size: int
    free: tuple[int, ...] | None = None
    must_include: tuple[int, ...] = ()
    policy: PlacementPolicy = DEFAULT_POLICY


def report_value(topology: NodeTopology, gpus: Collection[int]) -> ValueReport:
    """Report what one set is worth beside the best set of its size on the empty machine.

    Raises `UnknownDevice` for a GPU that the node does not have, `InvalidRequest` for an empty set.
    """
    mask = _mask(topology, gpus, "set")
    if not mask:
        msg = "set holds no GPU, expected at least one"
        raise InvalidRequest(msg)
    members = gpus_of(mask)
    machine = build_machine(topology)
    own = _select(machine, mask, _ANY_SET)
    if isinstance(own, Unfit):  # pragma: no cover - no condition is set that a free set could fail
        raise InvalidRequest(own.reason.value)
    best = select_set(machine, available=machine.all_gpus, size=len(members))
    return ValueReport(
        schema_version=SCHEMA_VERSION,
        machine=machine_report(topology),
        gpus=members,
        message_bytes=REFERENCE_MESSAGE_BYTES,
        value_gbytes_per_s=own.value_gbytes_per_s,
        floor_gbytes_per_s=own.value_gbytes_per_s * (1 - STATED_ERROR[own.limit]),
        value_class=own.value_class,
        limit=own.limit.name.lower(),
        loss=own.loss,
        best_gpus=None if isinstance(best, Unfit) else best.gpus,
        best_value_gbytes_per_s=None if isinstance(best, Unfit) else best.value_gbytes_per_s,
        whole_value_gbytes_per_s=own.value_gbytes_per_s / (1 - own.loss) if own.loss < 1 else 0.0,
        is_measured=isinstance(machine, MachineTables) and _is_measured(topology, members),
        is_known=_is_known(machine, mask),
        has_nvlink=_holds(machine, mask, _required(Affinity.NVLINK)),
        has_switch=_holds(machine, mask, _required(Affinity.PCIE_SWITCH)),
        has_numa=_holds(machine, mask, _required(Affinity.NUMA)),
        has_nic=_holds(machine, mask, replace(_ANY_SET, nic=NicRule.REQUIRED)),
    )


def report_best(topology: NodeTopology, question: BestQuery) -> BestReport:
    """Report the best set for a question, or why there is none.

    Raises `UnknownDevice` for a GPU that the node does not have, `InvalidRequest` for a size
    outside 1..n, or for a minimum bandwidth with one GPU.
    """
    if question.size > topology.n_gpus:
        msg = f"size is {question.size}, expected 1..{topology.n_gpus}"
        raise InvalidRequest(msg)
    if question.size == 1 and question.policy.min_bandwidth_gbytes_per_s is not None:
        msg = "min-bandwidth with size 1, expected 2 GPUs or more: one has nothing to reduce"
        raise InvalidRequest(msg)
    machine = build_machine(topology)
    free = machine.all_gpus
    if question.free is not None:
        free = _mask(topology, question.free, "free set")
    must_include = _mask(topology, question.must_include, "must-include set")
    found = select_set(
        machine,
        available=free,
        must_include=must_include,
        size=question.size,
        policy=question.policy,
    )
    return BestReport(
        schema_version=SCHEMA_VERSION,
        machine=machine_report(topology),
        request=RequestReport(
            size_gpus=question.size,
            free=gpus_of(free),
            must_include=gpus_of(must_include),
            affinity=question.policy.affinity.value,
            policy=question.policy.strength.value,
            min_bandwidth_gbytes_per_s=question.policy.min_bandwidth_gbytes_per_s,
            nic=question.policy.nic.value,
        ),
        selected=None if isinstance(found, Unfit) else _selected_report(machine, found),
        unfit=UnfitReport(found.reason.value, found.detail) if isinstance(found, Unfit) else None,
        runner_up=_runner_up_report(machine, free, must_include, question),
        is_every_set_compared=isinstance(machine, MachineTables),
    )


def report_rank(topology: NodeTopology, size: int, *, limit: int | None = None) -> RankReport:
    """Report every set of a size, best first; at most `limit` of them.

    Raises `InvalidRequest` for a size outside 1..n, and above 16 GPUs, where sets are too many.
    """
    machine = build_machine(topology)
    if not isinstance(machine, MachineTables):
        msg = (
            f"the node has {topology.n_gpus} GPUs, expected at most {MAX_TABLE_GPUS} "
            "to rank every set; request the best one instead"
        )
        raise InvalidRequest(msg)
    if not 1 <= size <= machine.n_gpus:
        msg = f"size is {size}, expected 1..{machine.n_gpus}"
        raise InvalidRequest(msg)
    sets = mask_index(machine.n_gpus).by_size[size]
    ranked = sets[np.lexsort((machine.tie[sets], machine.order[sets]))].tolist()
    groups: dict[tuple[float, ...], int] = {}
    return RankReport(
        schema_version=SCHEMA_VERSION,
        machine=machine_report(topology),
        size_gpus=size,
        n_sets=len(ranked),
        message_bytes=REFERENCE_MESSAGE_BYTES,
        sets=tuple(
            _ranked_report(machine, mask, rank, groups)
            for rank, mask in enumerate(ranked[:limit], start=1)
        ),
    )


# --- Parts ---------------------------------------------------------------------------------------


def _mask(topology: NodeTopology, gpus: Collection[int], label: str) -> int:
    for gpu in gpus:
        if not 0 <= gpu < topology.n_gpus:
            msg = f"{label}: GPU {gpu} is not there, expected 0..{topology.n_gpus - 1}"
            raise UnknownDevice(msg)
    return mask_of(gpus)


def _select(machine: Machine, mask: int, policy: PlacementPolicy) -> Selected | Unfit:
    """Select exactly this set, if it meets the policy."""
    return select_set(
        machine, available=mask, must_include=mask, size=mask.bit_count(), policy=policy
    )


def _holds(machine: Machine, mask: int, policy: PlacementPolicy) -> bool:
    return isinstance(_select(machine, mask, policy), Selected)


def _is_known(machine: Machine, mask: int) -> bool:
    return _holds(machine, mask, replace(_ANY_SET, min_bandwidth_gbytes_per_s=_LEAST_GBYTES_PER_S))


def _required(affinity: Affinity) -> PlacementPolicy:
    return PlacementPolicy(affinity=affinity, strength=Strength.REQUIRED)


def _runner_up_report(
    machine: Machine, free: int, must_include: int, question: BestQuery
) -> RunnerUpReport | None:
    found = find_runner_up(
        machine,
        available=free,
        must_include=must_include,
        size=question.size,
        policy=question.policy,
    )
    if found is None:
        return None
    return RunnerUpReport(
        gpus=found.gpus,
        value_gbytes_per_s=found.value_gbytes_per_s,
        decided_by=found.decided_by.value,
        figures=found.figures,
    )


def _ranked_report(
    machine: MachineTables, mask: int, rank: int, groups: dict[tuple[float, ...], int]
) -> RankedReport:
    """One row; sets that differ in their ids alone are one of the `groups`, numbered as met."""
    value, raw_sum = float(machine.value[mask]), float(machine.raw_sum[mask])
    limit = Limit(int(machine.limit[mask]))
    alike = (int(machine.order[mask]), raw_sum, value, limit)
    return RankedReport(
        rank=rank,
        group=groups.setdefault(alike, len(groups) + 1),
        gpus=gpus_of(mask),
        value_gbytes_per_s=value,
        value_class=int(machine.value_class[mask]),
        limit=limit.name.lower(),
        is_known=bool(machine.is_known[mask]),
        class_sum=float(machine.class_sum[mask]),
        raw_sum=raw_sum,
    )


def _selected_report(machine: Machine, found: Selected) -> SelectedReport:
    return SelectedReport(
        gpus=found.gpus,
        value_gbytes_per_s=found.value_gbytes_per_s,
        value_class=found.value_class,
        limit=found.limit.name.lower(),
        loss=found.loss,
        is_known=_is_known(machine, mask_of(found.gpus)),
        satisfies_affinity=found.satisfies_affinity,
        remainder_cost_gpus=found.remainder_cost_gpus,
    )


def _is_measured(topology: NodeTopology, gpus: tuple[int, ...]) -> bool:
    measured = topology.measurement
    return measured is not None and gpus in dict(measured.figures)
