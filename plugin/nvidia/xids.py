"""The meaning of XIDs: which make their GPU unhealthy, and what clears each of them.

Which XIDs count is what NVIDIA's device plugin does (k8s-device-plugin v0.20.0,
internal/rm/health.go:29-41, 158-266), so that both judge a GPU alike. It marks for every XID but
those of applications, whatever the catalogue says of it, and so does this. One thing differs:
with `DP_DISABLE_HEALTHCHECKS=all` and single XIDs enabled, its comment says that these count, while
its code watches nothing; here they count.

Remedies are the column "Resolution Bucket (Immediate Action)" of NVIDIA's Xid catalogue for Ampere
and newer (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, as of 2026). Its workflows
stand under the gravest step that they may end with, as NVML reports the number of an XID only:

- 48 (WORKFLOW_XID_48) and 74 (WORKFLOW_NVLINK_ERR): "a GPU reset or node reboot is needed to clear
  this error"; 144..150 (WORKFLOW_NVLINK5_ERR): sub-codes of either no action or a reset.
- 45 (WORKFLOW_XID_45) and 154 (XID_154) only accompany another XID, which has its own remedy.

Rows that are unused, that NVIDIA left open (162..172), or that name no step (CHECK_UVM,
CHECK_MECHANICALS, UPDATE_SWFW, CONTACT_SUPPORT) have no entry, and so no known remedy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from plugin.machine import Remedy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["APPLICATION_XIDS", "XID", "XidRules", "read_xid_rules"]

XID = "XID"
"""NVIDIA's name for the numbers of critical errors (nvmlEventTypeXidCriticalError)."""
APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 109})
"""Errors of applications, after which NVIDIA's plugin takes the GPU to be healthy: graphics engine
exception, memory page fault, stopped processing, preemptive cleanup, video processor exception,
context switch timeout (k8s-device-plugin v0.20.0, internal/rm/health.go:233-240)."""

_ALL = 0
"""NVIDIA's number for "every XID" (`allXIDs`); so a 0 in a list means all, there and here."""
_MAX = 2**64 - 1
"""Largest number that Go's ParseUint(…, 10, 64) takes."""


def _span(first: int, last: int) -> tuple[int, ...]:
    return tuple(range(first, last + 1))


_XIDS: Mapping[Remedy, Iterable[int]] = {
    Remedy.NOTHING: (
        *(14, 37, 38, 43, 44, 45, 63, 66, 67, 92, 93, 106, 107, 108, 121, 137, 141),
        *(152, 153, 154, 157, 160, 161),
    ),
    Remedy.RESTART_APP: (
        *(8, 11, 13, 25, 31, 32, 39, 40, 41, 60, 68, 69, 70, 71, 72, 75, 76, 77, 80),
        *(82, 83, 84, 85, 86, 88, 89, 94, *_span(96, 105), *_span(126, 135), 139),
    ),
    Remedy.RESET_GPU: (
        *(46, 48, 62, 64, 74, 95, 109, 110, 119, 120, 136, 140, 143, *_span(144, 150)),
        *(155, 156, 158),
    ),
    Remedy.RESTART_NODE: (79, 151),  # RESTART_BM; RESTART_VM
}
_REMEDIES = {xid: remedy for remedy, xids in _XIDS.items() for xid in xids}


@dataclass(frozen=True, slots=True)
class XidRules:
    """Which XIDs count. `malformed` are the words of the variables that are no XID, as given.

    An XID that is enabled by its number counts, whatever the other settings; `is_all_enabled` and
    `is_all_disabled` are about those that no list names. Enabling wins.
    """

    enabled: frozenset[int] = frozenset()
    disabled: frozenset[int] = APPLICATION_XIDS
    is_all_enabled: bool = False
    is_all_disabled: bool = False
    malformed: tuple[str, ...] = ()

    @property
    def is_off(self) -> bool:
        """Whether nothing at all is to be watched: all is disabled and nothing enabled."""
        return self.is_all_disabled and not self.is_all_enabled and not self.enabled

    def counts(self, number: int) -> bool:
        """Whether an XID makes its GPU unhealthy."""
        if self.is_all_enabled or number in self.enabled:
            return True
        return not self.is_all_disabled and number not in self.disabled

    @staticmethod
    def remedy_of(number: int) -> Remedy:
        """What clears an XID, by NVIDIA's catalogue.

        >>> XidRules.remedy_of(94), XidRules.remedy_of(79), XidRules.remedy_of(9999)
        (<Remedy.RESTART_APP: 'a restart of the application'>,
         <Remedy.RESTART_NODE: 'a restart of the node'>, <Remedy.UNKNOWN: 'an unknown remedy'>)
        """
        return _REMEDIES.get(number, Remedy.UNKNOWN)


def read_xid_rules(disable: str = "", enable: str = "") -> XidRules:
    """Read the values of DP_DISABLE_HEALTHCHECKS and DP_ENABLE_HEALTHCHECKS.

    Each is a comma list of XIDs, in which `all` or `xids` stand for every XID. Like NVIDIA's plugin
    this leaves out words that are no number, and lists them.

    >>> rules = read_xid_rules(disable="48, gpu", enable="109")
    >>> rules.counts(48), rules.counts(109), rules.counts(31), rules.counts(79), rules.malformed
    (False, True, False, True, ('gpu',))
    """
    disabled, is_all_disabled, bad = _read_list(disable)
    enabled, is_all_enabled, also_bad = _read_list(enable)
    return XidRules(
        enabled=enabled,
        disabled=disabled | APPLICATION_XIDS,
        is_all_enabled=is_all_enabled,
        is_all_disabled=is_all_disabled,
        malformed=bad + also_bad,
    )


def _read_list(text: str) -> tuple[frozenset[int], bool, tuple[str, ...]]:
    """The XIDs of a list, whether it says all, and the words that are no XID."""
    xids: set[int] = set()
    malformed: list[str] = []
    for word in (part.strip() for part in text.lower().split(",")):
        if word in {"all", "xids"}:
            return frozenset(), True, tuple(malformed)  # the rest goes unread, as in NVIDIA's
        if re.fullmatch(r"[0-9]+", word, re.ASCII) and int(word) <= _MAX:
            xids.add(int(word))
        elif word:
            malformed.append(word)
    return frozenset(xids - {_ALL}), _ALL in xids, tuple(malformed)
