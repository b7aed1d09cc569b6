"""What a set of GPUs over several nodes is worth: NCCL all-reduce bus bandwidth in GB/s.

What it answers: for the GPUs that a group has on each node, the bandwidth to be expected with large
messages and idle neighbours, what limits it, and how little it may be. It claims nothing where a
NIC's rate is unknown, and nothing of what a tier of the network costs. It chooses nothing.

Method. A ring enters and leaves every node once for each NIC, so the node with the fewest NICs near
its GPUs decides, whatever the others have:

    B = min(min_i V_i, g * max_r min_i min(c(r) * R_i(r), P_i))

- V_i: the value of node i's own GPUs (`topology.value.set_value`); one GPU is no limit.
- R_i(r): number of distinct RDMA NICs within PXB of node i's GPUs whose rate is at least r; the
  maximum is over the rates that occur, since rings use one rate for all their NICs.
- c(r) = `NIC_SHARE` * r: what a ring gets out of one NIC.
- P_i: what the PCIe ports of node i's GPUs carry (`topology.model.links`): a GPU gets no more from
  two NICs than passes its own port. It limits none of the sets that were measured.
- g = 2 (n - 1) / n for n GPUs on exactly 2 nodes whose switches all reduce (NVLink SHARP), else 1:
  NCCL doubles the network's share of its NVLS tree at 2 nodes (nccl@5067397c
  src/graph/tuning.cc:320).

Nodes of one NVLink clique are joined by the fabric itself: the value is that of one switch with all
the GPUs. One published point supports that: 8 GB200 over 2 trays reach 811 GB/s, 905 are predicted
(lixueduan.com/posts/ai/13-gb200-mnnvl-nccl-test). On one node B is V. A NIC of unknown rate, or
without a link, counts as none beside others whose rate is known: it could only add.

Source: 486 sets over 2 to 4 nodes of 8 H100 with a 400 Gbit/s NIC for each GPU (BandPilot, 2 GiB);
`benchmarks group-fidelity` reports how far the value is off there and at points that others
published; docs/adr/0027-value-of-a-group.md has what was tried beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from topology.errors import InvalidRequest
from topology.model import DEFAULT_CONSTANTS, REFERENCE_MESSAGE_BYTES
from topology.value import Limit, at_message_size, start_up_cost, switch_gain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topology.groups.value_share import GroupShare, OwnValue

__all__ = [
    "GROUP_STATED_ERROR",
    "NIC_SHARE",
    "GroupLimit",
    "GroupUnknown",
    "GroupValue",
    "group_value",
]

NIC_SHARE = 0.956
"""What a ring gets of a NIC's rate: fitted on those 486 sets, 47.8 GB/s of 400 Gbit/s. NCCL's
maintainers name 46 to 48 GB/s for 400 and 24 for 200 Gbit/s (nccl-tests issue 290, nccl issue
412)."""
GROUP_STATED_ERROR = 0.28
"""How much too high the value of a set over several nodes may be, as a share of it: the 90th
percentile of the relative error over those sets, nearly all of which is overrating (5th percentile
2.3 % too low). `min-bandwidth` of a group is compared after subtracting it."""

_BITS_OF_A_BYTE = 8
_DOUBLED_NODES = 2
"""Number of nodes at which NCCL doubles the network's share."""


class GroupLimit(Enum):
    """What limits a set over nodes."""

    NOTHING = "nothing"
    """One GPU in all."""
    NODE = "node"
    """What one node's own GPUs reach among themselves."""
    NIC = "nic"
    """The NICs near the GPUs of the node that has the fewest."""
    PORT = "port"
    """The PCIe ports of a node's GPUs."""
    FABRIC = "fabric"
    """The NVLink fabric that spans the nodes."""


class GroupUnknown(Enum):
    """Why the value of a set over nodes, or its least, is unknown; constant sentences."""

    NO_NICS = "the NICs of a node are unknown"
    NO_NEAR_NIC = "a node has no RDMA NIC that is known to be within PXB of its GPUs"
    NO_RATE = "the rates of the NICs within PXB of a node's GPUs are unknown"
    NODE_VALUE = "a node's own set rests on facts that are unknown"


@dataclass(frozen=True, slots=True)
class GroupValue:
    """The value of a set over nodes.

    - `gbytes_per_s`: predicted all-reduce bus bandwidth at 1 GiB, GB/s; 0 for one GPU in all, None
      where it is unknown.
    - `least_gbytes_per_s`: the same less the stated errors; None also where the value rests on an
      unknown. What `min-bandwidth` is compared with.
    - `limited_by`: None where the value is unknown; `limiting_share` is the index of the share that
      limits, the first of equals, None for the fabric.
    - `reason`: why a figure is None, and `reason_share` of which share; None where none is.
    """

    gbytes_per_s: float | None
    least_gbytes_per_s: float | None
    limited_by: GroupLimit | None
    limiting_share: int | None = None
    reason: GroupUnknown | None = None
    reason_share: int | None = None


def group_value(shares: Sequence[GroupShare], *, nic_share: float = NIC_SHARE) -> GroupValue:
    """Value the set that a group has, one share for each node.

    The order of the shares does not change the value. `nic_share` is for fits. O(shares * NICs of a
    node * rates). Raises `InvalidRequest` without a share.

    >>> from topology.groups.value_share import GroupShare
    >>> from topology.recordings import load_recording
    >>> from topology.select import build_machine
    >>> machine = build_machine(load_recording("dgx-h100"))
    >>> four = GroupShare(machine, (0, 1, 2, 3))
    >>> round(group_value([four, four]).gbytes_per_s), round(group_value([four] * 3).gbytes_per_s)
    (335, 191)
    """
    if not shares:
        msg = "a group without a share, expected one for each of its nodes"
        raise InvalidRequest(msg)
    own = [share.own for share in shares]
    if len(shares) == 1:
        limit = GroupLimit.NODE if len(shares[0].gpus) > 1 else GroupLimit.NOTHING
        bound, least = _Bound(own[0].gbytes_per_s, limit, 0), own[0].least_gbytes_per_s
    elif (fabric := _fabric_bound(shares)) is not None:
        bound, least = fabric, fabric.gbytes_per_s * (1 - GROUP_STATED_ERROR)
    else:
        rates = [_known_rates(share) for share in shares]
        if not all(rates):
            return _unknown(shares, rates)
        bound = _with_nodes(_nic_bound(shares, rates, nic_share), shares, own)
        # One GPU has nothing to reduce on its node, and is no limit.
        pairs = zip(own, shares, strict=True)
        floors = [value.least_gbytes_per_s for value, share in pairs if len(share.gpus) > 1]
        least = min([bound.gbytes_per_s * (1 - GROUP_STATED_ERROR), *floors])
    dark = next((index for index, one in enumerate(own) if not one.is_known), None)
    return GroupValue(
        gbytes_per_s=bound.gbytes_per_s,
        least_gbytes_per_s=least if dark is None else None,
        limited_by=bound.limited_by,
        limiting_share=bound.share_index,
        reason=None if dark is None else GroupUnknown.NODE_VALUE,
        reason_share=dark,
    )


@dataclass(frozen=True, slots=True)
class _Bound:
    """GB/s that the set cannot exceed, by what, and on which share."""

    gbytes_per_s: float
    limited_by: GroupLimit
    share_index: int | None = None


def _with_nodes(between: _Bound, shares: Sequence[GroupShare], own: Sequence[OwnValue]) -> _Bound:
    """The bound between the nodes, or the first of the nodes' own sets that are worth less."""
    nodes = [
        _Bound(value.gbytes_per_s, GroupLimit.NODE, index)
        for index, (value, share) in enumerate(zip(own, shares, strict=True))
        if len(share.gpus) > 1
    ]
    return min([between, *nodes], key=lambda bound: bound.gbytes_per_s)


# --- Over one NVLink fabric ----------------------------------------------------------------------


def _fabric_bound(shares: Sequence[GroupShare]) -> _Bound | None:
    """The value of one switch with all the GPUs; None where no one clique is known to hold them."""
    fabrics = [share.fabric for share in shares]
    cliques = {share.clique for share in shares}
    if len(cliques) > 1 or None in cliques or not all(share.has_known_ports for share in shares):
        return None
    ports: list[float] = []
    reduces = True
    for share, fabric in zip(shares, fabrics, strict=True):
        if fabric is None:
            return None
        ports += [fabric.port_gbytes_per_s[i] for i in share.gpus]
        reduces = reduces and fabric.reduces
    b_inf = min(ports) * switch_gain(DEFAULT_CONSTANTS, len(ports), reduces=reduces)
    latency = np.array([start_up_cost(Limit.SWITCH)])
    value = at_message_size(np.array([b_inf]), latency, REFERENCE_MESSAGE_BYTES)
    return _Bound(float(value[0]), GroupLimit.FABRIC)


# --- Over NICs -----------------------------------------------------------------------------------


def _known_rates(share: GroupShare) -> list[float]:
    """Rates of the NICs near a share, Gbit/s, where they are known."""
    return [nic.gbit_per_s for nic in share.near_nics if nic.gbit_per_s is not None]


def _unknown(shares: Sequence[GroupShare], rates: Sequence[Sequence[float]]) -> GroupValue:
    """Why there is no value: the first share without a NIC of known rate."""
    index = next(index for index, known in enumerate(rates) if not known)
    share = shares[index]
    reason = GroupUnknown.NO_RATE if share.near_nics else GroupUnknown.NO_NEAR_NIC
    if not share.machine.topology.nics:
        reason = GroupUnknown.NO_NICS
    return GroupValue(None, None, None, reason=reason, reason_share=index)


def _nic_bound(
    shares: Sequence[GroupShare], rates: Sequence[Sequence[float]], nic_share: float
) -> _Bound:
    """What rings over the NICs reach, at the best of the rates; every share has some."""
    bounds = [
        _at_rate(shares, rates, rate, nic_share)
        for rate in sorted({rate for known in rates for rate in known})
    ]
    best = max(bounds, key=lambda bound: bound.gbytes_per_s)
    return replace(best, gbytes_per_s=_two_node_gain(shares) * best.gbytes_per_s)


def _at_rate(
    shares: Sequence[GroupShare], rates: Sequence[Sequence[float]], rate: float, nic_share: float
) -> _Bound:
    """What rings at one rate reach: the NICs of the node with the fewest, or its GPUs' ports."""
    bounds: list[_Bound] = []
    for index, (share, known) in enumerate(zip(shares, rates, strict=True)):
        n_nics = sum(other >= rate for other in known)
        by_nics = nic_share * rate / _BITS_OF_A_BYTE * n_nics
        bounds += [
            _Bound(by_nics, GroupLimit.NIC, index),
            _Bound(share.ports_gbytes_per_s, GroupLimit.PORT, index),
        ]
    return min(bounds, key=lambda bound: bound.gbytes_per_s)


def _two_node_gain(shares: Sequence[GroupShare]) -> float:
    """How often the network's share counts: above once for 2 nodes whose switches all reduce."""
    fabrics = [share.fabric for share in shares]
    is_doubled = all(fabric is not None and fabric.reduces for fabric in fabrics)
    if len(shares) != _DOUBLED_NODES or not is_doubled:
        return 1.0
    n = sum(len(share.gpus) for share in shares)
    return 2 * (n - 1) / n
