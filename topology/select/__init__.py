"""Which set of GPUs a container or a pod gets.

Chooses by tables; knows no cluster and no kubelet.
"""

from topology.select.fit import (
    ContainerRequest,
    ContainerRole,
    PodFit,
    fit_pod,
    join_sets,
    pod_size,
)
from topology.select.large_machine import LargeMachine
from topology.select.levels import affinity_level
from topology.select.near_best import near_best_counts
from topology.select.outcome import Selected, Unfit, UnfitReason
from topology.select.runner_up import Criterion, RunnerUp, find_runner_up
from topology.select.selection import (
    ChosenSets,
    Machine,
    build_machine,
    select_set,
    select_sets,
)
from topology.select.tables import (
    VALUE_CLASS_GAP,
    MachineTables,
    build_tables,
    with_raw_figures,
)

__all__ = [
    "VALUE_CLASS_GAP",
    "ChosenSets",
    "ContainerRequest",
    "ContainerRole",
    "Criterion",
    "LargeMachine",
    "Machine",
    "MachineTables",
    "PodFit",
    "RunnerUp",
    "Selected",
    "Unfit",
    "UnfitReason",
    "affinity_level",
    "build_machine",
    "build_tables",
    "find_runner_up",
    "fit_pod",
    "join_sets",
    "near_best_counts",
    "pod_size",
    "select_set",
    "select_sets",
    "with_raw_figures",
]
