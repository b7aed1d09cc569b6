"""The annotations that users write on pods: one table of keys.

What it answers: for each key its values, its default, how its text is read and what it means. The
error messages and the command line's choices use this table; `make golden` writes the admission
policy's lists (user-keys.yaml of the chart) and the reference (docs/configuration.md, "Pod
annotations") from it. A value outside a key's set is an error that the user sees, never a silent
default. It never looks at a node.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from topology.errors import PolicyError, quote
from topology.model.names import PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "AFFINITY",
    "GROUP",
    "GROUP_DOMAIN",
    "GROUP_POLICY",
    "GROUP_SIZE",
    "MIN_BANDWIDTH",
    "NIC",
    "POD_KEYS",
    "POLICY",
    "PREFER",
    "USER_KEYS",
    "Affinity",
    "NicRule",
    "PlacementPolicy",
    "PodKey",
    "Prefer",
    "Strength",
]

AFFINITY = PREFIX + "affinity"
POLICY = PREFIX + "policy"
MIN_BANDWIDTH = PREFIX + "min-bandwidth"
PREFER = PREFIX + "prefer"
NIC = PREFIX + "nic"
GROUP = PREFIX + "group"
GROUP_SIZE = PREFIX + "group-size"
GROUP_DOMAIN = PREFIX + "group-domain"
GROUP_POLICY = PREFIX + "group-policy"


class Affinity(Enum):
    """How close a container's GPUs should be. ANY is the absent annotation."""

    ANY = "any"
    NVLINK = "nvlink"
    PCIE_SWITCH = "pcie-switch"
    NUMA = "numa"
    NONE = "none"


class Strength(Enum):
    """Whether a node without such a set may still take the pod."""

    PREFERRED = "preferred"
    REQUIRED = "required"


class Prefer(Enum):
    """How nodes compare: by closeness to their own machine's best, or by absolute GB/s."""

    BALANCED = "balanced"
    FASTEST = "fastest"


class NicRule(Enum):
    """Whether the set should or must have an RDMA NIC within PXB; UNSET: no annotation."""

    UNSET = "unset"
    PREFERRED = "preferred"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class PlacementPolicy:
    """A pod's wishes. `min_bandwidth_gbytes_per_s` is None where none is set, else above 0."""

    affinity: Affinity = Affinity.ANY
    strength: Strength = Strength.PREFERRED
    min_bandwidth_gbytes_per_s: float | None = None
    prefer: Prefer | None = None
    nic: NicRule = NicRule.UNSET

    def __post_init__(self) -> None:
        floor = self.min_bandwidth_gbytes_per_s
        if floor is not None and not (0 < floor < math.inf):
            msg = f"min_bandwidth_gbytes_per_s is {floor}, expected a finite number above 0"
            raise PolicyError(msg)


@dataclass(frozen=True, slots=True)
class PodKey:
    """One key.

    `field` of `PlacementPolicy` holds the value; None: the policy does not. `choices` is the closed
    set of values; a key without one takes every text that matches all `patterns` as a whole
    (regular expressions of RE2 and Python alike), which `parse` turns into the value. `expected`
    ends messages about other texts. `needs` is a key that must stand beside it. `values`,
    `default`, `summary` and `explanation` are Markdown of the reference: cells of its table, one
    sentence, paragraphs.
    """

    name: str
    summary: str
    default: str
    example: str
    explanation: str = ""
    needs: str | None = None
    field: str | None = None
    choices: tuple[Enum, ...] = ()
    patterns: tuple[str, ...] = ()
    parse: Callable[[str], object] = str
    expected: str = ""
    values: str = ""

    def __post_init__(self) -> None:
        if self.choices:
            texts = [str(choice.value) for choice in self.choices]
            object.__setattr__(self, "expected", f"one of: {', '.join(texts)}")
            object.__setattr__(self, "values", ", ".join(f"`{text}`" for text in texts))

    def read(self, text: str) -> object:
        """The value of a text. Raises `PolicyError`, which names key, text and expectation.

        >>> POD_KEYS[0].read("numa")
        <Affinity.NUMA: 'numa'>
        """
        for choice in self.choices:
            if text == choice.value:
                return choice
        if self.choices or not all(re.fullmatch(pattern, text) for pattern in self.patterns):
            msg = f"annotation {self.name} is {quote(text)}, expected {self.expected}"
            raise PolicyError(msg)
        return self.parse(text)


_NAME = "[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?"

POD_KEYS = (
    PodKey(
        AFFINITY,
        field="affinity",
        choices=(Affinity.NVLINK, Affinity.PCIE_SWITCH, Affinity.NUMA, Affinity.NONE),
        default="absent: the best set for two or more GPUs, packing for one",
        summary="How close to each other the GPUs of one container should be.",
        explanation="""\
- `nvlink`: the NVLink graph that the set induces is connected over links that are up, or all \
GPUs are attached to one NVSwitch fabric.
  XGMI counts as NVLink for AMD GPUs.
- `pcie-switch`: all GPUs are attached to one PCIe switch tree (`PIX` or `PXB` to each other).
  GPUs on an NVSwitch have `nvlink`, whatever their PCIe switches.
- `numa`: all GPUs belong to one NUMA node.
- `none`: no requirement: the pod gets the set with the lowest future placement cost.

One GPU always satisfies.
GPUs of different models are never mixed in one set, unless the affinity is `none`.
""",
        example="nvlink",
    ),
    PodKey(
        POLICY,
        field="strength",
        choices=tuple(Strength),
        default="`preferred`",
        summary="Whether a node without a set of the wanted affinity may take the pod.",
        explanation="""\
- `preferred`: such a node may still take the pod, but scores lower.
- `required`: such a node fails the filter, and the pod waits.
  An unknown level never satisfies.
  Where even the empty machine has no such set of that size, the reason says "never on this node".

The policy is about `coterie.gpu/affinity` alone: a `coterie.gpu/min-bandwidth` and \
`coterie.gpu/nic: required` must hold under `preferred` too.
Without an affinity, or with `none`, `required` keeps the pod off nodes of unknown topology and \
nothing else, so that it may get the slowest set: to wait for a good one name an affinity or a \
minimum bandwidth.
""",
        example="required",
    ),
    PodKey(
        MIN_BANDWIDTH,
        field="min_bandwidth_gbytes_per_s",
        # float() also takes "nan", "1_0" and surrounding blanks: only plain decimals are meant.
        patterns=(r"[0-9]{1,9}([.][0-9]{1,9})?", ".*[1-9].*"),
        parse=float,
        expected="a decimal number of GB/s above 0, such as 40 or 37.5",
        values="a decimal number of GB/s above 0, such as `40` or `37.5`",
        default="no lower bound",
        summary="A lower bound on the set's predicted all-reduce bus bandwidth, in GB/s.",
        explanation="""\
Write the number in quotes: Kubernetes takes strings only as values of annotations.
A node without such a set fails the filter, also with `coterie.gpu/policy: preferred`.
The bound is compared after subtracting the model's stated error, so a set that qualifies really \
should reach it.
Among qualifying sets a pod without an affinity gets the one with the lowest future placement cost.
Unknown bandwidth never satisfies.
On a node whose topology is not known the bandwidth is unknown too.
On a member of a group with a size it applies to the whole group too, whose bandwidth over its \
nodes has a stated error of its own.
Else the key is an error on a pod in which any container, init containers included, requests \
exactly one GPU: there is nothing to reduce.
""",
        example="37.5",
    ),
    PodKey(
        PREFER,
        field="prefer",
        choices=tuple(Prefer),
        default="as the setting `prefer` says",
        summary="How nodes compare with each other.",
        explanation="""\
- `balanced`: by how close the set comes to the best of its size on that same machine.
  A fast machine is not preferred for being fast: among nodes that come equally close the pod \
goes where the future placement cost is lowest, weighed by what the GPUs are worth, so that \
scarce GPUs are left to pods that need them.
- `fastest`: by absolute GB/s.
""",
        example="fastest",
    ),
    PodKey(
        NIC,
        field="nic",
        choices=(NicRule.PREFERRED, NicRule.REQUIRED),
        default="NICs do not count",
        summary=(
            "Whether the set should (`preferred`) or must (`required`) have an RDMA NIC "
            "within `PXB`."
        ),
        example="preferred",
    ),
    PodKey(
        GROUP,
        patterns=(_NAME,),
        expected="a name of lower-case letters, digits, hyphens and dots, at most 63",
        values="a name",
        default="no group",
        summary=(
            "Pods of one namespace and group are placed together or not at all, near each other, "
            "on GPUs of one model."
        ),
        explanation="""\
With `coterie.gpu/group-size` no member is bound before all of them can be: they wait until all \
are there and a place for all is free.
Without a size a pod does not wait: it goes near the members that are bound already.
Every member carries the same keys, in its own metadata or in its controller's pod template.
GPUs of different models are never mixed in one group, unless the affinity of all its members is \
`none`.
""",
        example="train-7",
    ),
    PodKey(
        GROUP_SIZE,
        needs=GROUP,
        patterns=(r"[1-9][0-9]{0,3}",),
        parse=int,
        expected="a whole number 1..9999",
        values="a whole number of pods",
        default="members do not wait for each other",
        summary="How many pods with GPUs the group has at least.",
        explanation="""\
Pods without GPUs, such as a launcher, do not count.
Members beyond the size are placed alone, near the others.
A controller that creates its pods one after the other, each when the one before is running, never \
completes a group: leave the size out there.
""",
        example="16",
    ),
    PodKey(
        GROUP_DOMAIN,
        needs=GROUP,
        patterns=(_NAME,),
        expected="any, nvlink-domain or the name of a level of domains",
        values="`any`, `nvlink-domain`, or the name of a level of domains",
        default="`any`",
        summary="Within what all members of the group should be.",
        explanation="""\
`any` is the nearest domain that has room for all; `nvlink-domain` is one NVLink clique (such as \
an NVL72 rack); `leaf`, `spine`, `core`, `zone` and `region` are levels that many clusters have \
by [labels of their nodes](operator-guide.md#network-domains); others are those of the setting \
`group_levels`.
A name of no level has no effect, or with `required` keeps the group waiting; the Event \
`UnsupportedGpuRequest` says so.
""",
        example="leaf",
    ),
    PodKey(
        GROUP_POLICY,
        needs=GROUP,
        choices=tuple(Strength),
        default="`preferred`",
        summary="Whether the group may be placed in a wider domain than it names.",
        explanation="""\
- `preferred`: where no domain of that level has room, the nearest one above it that has.
- `required`: the group waits for such a domain.
""",
        example="required",
    ),
)
"""Every key, in the order of the reference and of the errors."""

USER_KEYS = tuple(key.name for key in POD_KEYS)
