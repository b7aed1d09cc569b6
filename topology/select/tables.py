"""Everything about every set of one machine type, computed once.

What it answers: for each mask of up to 16 GPUs its value, class, remainder and which affinity
levels it satisfies; so that a request is a scan of masks (`topology.select.selection`) and nothing
on the request path walks a graph. Machines that differ only in UUIDs and names share a table (keyed
by `topology.model.digest.topology_digest`); `with_raw_figures` adds what one node alone measured.
It chooses nothing.

Method. Value (`topology.value.set_value`), corrected by measurements (`topology.value.measured`),
at one message size; classes by size: sorted by value, a new class begins where the next is more
than `VALUE_CLASS_GAP` lower; remainder (`topology.value.remainder`). Ties within a class: measured
pair classes summed, or, by label, accelerator bandwidth per GPU and then mean PCIe closeness. Raw
measured sums, then the value itself, then lowest ids, order what is still equal: so numbering the
GPUs otherwise never changes the value of what is chosen.

Above `MAX_TABLE_GPUS` devices: `topology.select.large`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from topology.errors import InvalidTopology
from topology.model import DEFAULT_CONSTANTS, REFERENCE_MESSAGE_BYTES, PcieLevel, with_links_up
from topology.value import (
    DEFAULT_DEMAND,
    MAX_TABLE_GPUS,
    STATED_ERROR,
    alike_masks,
    apply_measurement,
    at_message_size,
    connected_masks,
    gpus_near_rdma,
    known_table,
    mask_index,
    node_capacities,
    pair_sums,
    raw_sums,
    remainder_table,
)
from topology.value.value_table import value_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from topology.model import ModelConstants, NodeTopology
    from topology.value import Capacities, Demand

__all__ = ["VALUE_CLASS_GAP", "MachineTables", "build_tables", "with_raw_figures"]

VALUE_CLASS_GAP = 0.10
"""Values of one size closer than this are equal: the median error of the value model over all sets
of the three measured nodes stays below it (`benchmarks fidelity`)."""
_ERRORS = np.array([STATED_ERROR[limit] for limit in sorted(STATED_ERROR)])


@dataclass(frozen=True, slots=True, eq=False)
class MachineTables:
    """One machine type. Arrays are indexed by mask (length 2**n) and never written again.

    - `value` float64, GB/s at `message_bytes`; `loss` float64, 1 - value / `whole_value` of that
      size, 0..1 (0 for one GPU).
    - `value_class` int32, 0 is the best class of its size.
    - `order` int32: (value class, sums of the tie-break) of a mask within its size, lower is
      better; equal masks are equal up to the remainder. `tie` int32: raw sums, value, lowest ids.
    - `remainder` float64, R in 0..1.
    - `limit` int8 (`topology.value.limits.Limit`).
    - `is_linked`, `is_switch`, `is_numa`, `has_nic`, `is_uniform` (one GPU model), `is_known` (no
      unknown level enters the value): bool.
    - `best_value[k]`: GB/s of the best set of k on the empty machine (GPU models not mixed);
      `whole_value[k]`: the same with all links up (`topology.model.links_down`), if that is more.
    """

    topology: NodeTopology
    capacities: Capacities
    demand: Demand
    message_bytes: int
    value: NDArray[np.float64]
    loss: NDArray[np.float64]
    value_class: NDArray[np.int32]
    order: NDArray[np.int32]
    tie: NDArray[np.int32]
    remainder: NDArray[np.float64]
    limit: NDArray[np.int8]
    is_linked: NDArray[np.bool_]
    is_switch: NDArray[np.bool_]
    is_numa: NDArray[np.bool_]
    has_nic: NDArray[np.bool_]
    is_uniform: NDArray[np.bool_]
    is_known: NDArray[np.bool_]
    best_value: tuple[float, ...]
    whole_value: tuple[float, ...]
    class_sum: NDArray[np.float64]
    raw_sum: NDArray[np.float64]
    n_gpus: int = field(init=False)
    """Number of GPUs, 1..16."""
    all_gpus: int = field(init=False)
    """Mask of all GPUs."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_gpus", self.topology.n_gpus)
        object.__setattr__(self, "all_gpus", (1 << self.topology.n_gpus) - 1)

    def floor_of(self, sets: NDArray[np.int64]) -> NDArray[np.float64]:
        """`value` of some masks less the stated error, GB/s."""
        floor: NDArray[np.float64] = self.value[sets] * (1 - _ERRORS[self.limit[sets]])
        return floor


def build_tables(
    topology: NodeTopology,
    demand: Demand = DEFAULT_DEMAND,
    *,
    constants: ModelConstants = DEFAULT_CONSTANTS,
    message_bytes: int = REFERENCE_MESSAGE_BYTES,
) -> MachineTables:
    """Table every set of a node of up to 16 GPUs.

    Raises `InvalidTopology` above 16 GPUs. Time: `benchmarks speed` (goal 5 ms at 8, 1 s at 16).

    >>> from topology.recordings import load_recording
    >>> tables = build_tables(load_recording("dgx-1-v100"))
    >>> round(tables.best_value[4] / tables.best_value[2], 1)
    2.0
    """
    n = topology.n_gpus
    if n > MAX_TABLE_GPUS:
        msg = f"topology has {n} GPUs, expected at most {MAX_TABLE_GPUS} for a table of every set"
        raise InvalidTopology(msg)
    index = mask_index(n)
    capacities = node_capacities(topology, constants)
    table = value_table(capacities, constants)
    b_inf, latency = table.value, table.latency
    class_sum, raw_sum = _link_density(capacities), np.zeros(1 << n)
    if topology.measurement is not None:
        b_inf, latency, class_sum = apply_measurement(
            topology.measurement, value=b_inf, latency=latency, n=n
        )
        raw_sum = raw_sums(topology.measurement, class_sum, n)
    value = np.round(at_message_size(b_inf, latency, message_bytes), 6)
    value_class = _classes(value, index.size)
    closeness = _mean_closeness(topology)
    is_uniform = _uniform(topology)
    best_value = _best_values(value, is_uniform, index.by_size)
    predicted = np.round(at_message_size(table.value, table.latency, message_bytes), 6)
    whole_value = _whole_values(topology, constants, message_bytes, best_value, predicted)
    return MachineTables(
        topology=topology,
        capacities=capacities,
        demand=demand,
        message_bytes=message_bytes,
        value=value,
        loss=_losses(value, index.size, whole_value),
        value_class=value_class,
        order=_ranks(index.size, value_class, -class_sum, -closeness),
        tie=_total_order(index.by_size, raw_sum, value),
        remainder=remainder_table(value, n, demand),
        limit=table.limit,
        is_linked=_linked(capacities),
        is_switch=_inside_any(n, (group for group, _ in capacities.switch_groups)),
        is_numa=_inside_any(n, (group for group, _ in capacities.socket_groups)),
        has_nic=_any_member(n, gpus_near_rdma(topology)),
        is_uniform=is_uniform,
        is_known=known_table(topology, table),
        best_value=best_value,
        whole_value=whole_value,
        class_sum=class_sum,
        raw_sum=raw_sum,
    )


def with_raw_figures(tables: MachineTables, topology: NodeTopology) -> MachineTables:
    """The shared tables of a machine type, with one node's own raw figures as the last tie-break.

    `topology` has the digest of the tables. Everything but `topology`, `tie` and `raw_sum` is
    shared with `tables`.
    """
    if topology.measurement is None:
        return tables
    raw_sum = raw_sums(topology.measurement, tables.class_sum, tables.n_gpus)
    tie = _total_order(mask_index(tables.n_gpus).by_size, raw_sum, tables.value)
    return replace(tables, topology=topology, raw_sum=raw_sum, tie=tie)


def _whole_values(
    topology: NodeTopology,
    constants: ModelConstants,
    message_bytes: int,
    best_value: tuple[float, ...],
    predicted: NDArray[np.float64],
) -> tuple[float, ...]:
    """`best_value` as it would be with all links up, by the predicted gain of these links.

    Of several ways to put links back all GPUs together have the best one, and smaller sets the one
    that gains least: no set that lost nothing may seem to have.
    """
    index, is_uniform = mask_index(topology.n_gpus), _uniform(topology)
    own = np.array(_best_values(predicted, is_uniform, index.by_size))
    gains: list[NDArray[np.float64]] = []
    for whole in with_links_up(topology):
        table = value_table(node_capacities(whole, constants), constants)
        value = np.round(at_message_size(table.value, table.latency, message_bytes), 6)
        up = np.array(_best_values(value, is_uniform, index.by_size))
        gains.append(np.divide(up, own, out=np.ones(len(own)), where=own > 0))
    if not gains:
        return best_value
    gain = np.min(gains, axis=0)
    gain[-1] = np.max(gains, axis=0)[-1]
    return tuple((np.array(best_value) * np.maximum(gain, 1)).tolist())


def _classes(value: NDArray[np.float64], size: NDArray[np.int16]) -> NDArray[np.int32]:
    by_size_and_value = np.lexsort((-value, size))
    sorted_value, sorted_size = value[by_size_and_value], size[by_size_and_value]
    is_first = np.ones(len(value), dtype=np.bool_)
    is_first[1:] = sorted_size[1:] != sorted_size[:-1]
    falls = np.ones(len(value), dtype=np.bool_)
    falls[1:] = sorted_value[1:] < sorted_value[:-1] * (1 - VALUE_CLASS_GAP)
    running = np.cumsum(falls | is_first)
    starts = np.maximum.accumulate(np.where(is_first, running, 0))
    classes = np.empty(len(value), dtype=np.int32)
    classes[by_size_and_value] = running - starts
    return classes


def _losses(
    value: NDArray[np.float64], size: NDArray[np.int16], whole_value: tuple[float, ...]
) -> NDArray[np.float64]:
    best = np.array(whole_value)[size]
    share = np.divide(value, best, out=np.ones(len(value)), where=best > 0)
    losses: NDArray[np.float64] = np.maximum(0.0, 1 - share)
    return losses


def _ranks(*keys: NDArray[np.float64] | NDArray[np.int16] | NDArray[np.int32]) -> NDArray[np.int32]:
    """Dense ranks by several keys, the first the most significant; equal keys share a rank."""
    order = np.lexsort(keys[::-1])
    changes = np.zeros(len(order), dtype=np.bool_)
    for key in keys:
        changes[1:] |= key[order[1:]] != key[order[:-1]]
    ranks = np.empty(len(order), dtype=np.int32)
    ranks[order] = np.cumsum(changes)
    return ranks


def _total_order(
    by_size: tuple[NDArray[np.int64], ...],
    raw_sum: NDArray[np.float64],
    value: NDArray[np.float64],
) -> NDArray[np.int32]:
    """Position of each mask within its size: higher raw sum, higher value, then lowest ids."""
    tie = np.zeros(len(raw_sum), dtype=np.int32)
    for masks in by_size:
        # by_size stands in order of lowest ids, and a stable sort keeps it.
        order = np.lexsort((-value[masks], -raw_sum[masks]))
        tie[masks[order]] = np.arange(len(masks))
    return tie


def _link_density(capacities: Capacities) -> NDArray[np.float64]:
    """Direct accelerator bandwidth inside every mask per GPU, GB/s."""
    n, unit = capacities.n, capacities.unit_gbytes_per_s
    inside = pair_sums([[unit * u for u in row] for row in capacities.units])
    return np.round(inside / np.maximum(mask_index(n).size, 1), 6)


def _mean_closeness(topology: NodeTopology) -> NDArray[np.float64]:
    """Mean PCIe closeness of the pairs inside every mask: 5 (PIX) .. 1 (SYS).

    An unknown level counts as NODE inside one known NUMA node, else as SYS.
    """
    n, farthest = topology.n_gpus, PcieLevel.UNKNOWN.rank
    inside = pair_sums([[farthest - _rank(topology, i, j) for j in range(n)] for i in range(n)])
    size = mask_index(n).size
    return np.round(inside / np.maximum(size * (size - 1) / 2, 1), 6)


def _rank(topology: NodeTopology, i: int, j: int) -> int:
    level = topology.pcie[i][j]
    if level is not PcieLevel.UNKNOWN:
        return level.rank
    numa = topology.gpus[i].numa_node
    is_near = numa is not None and numa == topology.gpus[j].numa_node
    return (PcieLevel.NODE if is_near else PcieLevel.SYS).rank


def _inside_any(n: int, groups: Iterable[int]) -> NDArray[np.bool_]:
    """Masks that lie inside one of the groups; single GPUs and the empty mask always do."""
    index = mask_index(n)
    inside: NDArray[np.bool_] = index.size < 2  # noqa: PLR2004 - one GPU is close to itself
    for group in groups:
        inside = inside | (index.masks & ~group == 0)
    return inside


def _linked(capacities: Capacities) -> NDArray[np.bool_]:
    """Masks that accelerator links connect, whether directly or through a fabric."""
    linked = np.zeros(1 << capacities.n, dtype=np.bool_)
    linked[connected_masks(capacities.adjacency, capacities.n)] = True
    return linked


def _any_member(n: int, members: int) -> NDArray[np.bool_]:
    holds: NDArray[np.bool_] = mask_index(n).masks & members != 0
    return holds


def _uniform(topology: NodeTopology) -> NDArray[np.bool_]:
    return _inside_any(topology.n_gpus, alike_masks(gpu.model for gpu in topology.gpus))


def _best_values(
    value: NDArray[np.float64],
    is_uniform: NDArray[np.bool_],
    by_size: tuple[NDArray[np.int64], ...],
) -> tuple[float, ...]:
    best: list[float] = []
    for masks in by_size:
        alike = masks[is_uniform[masks]]
        best.append(float(value[alike if len(alike) else masks].max()))
    return tuple(best)
