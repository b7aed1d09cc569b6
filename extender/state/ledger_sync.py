"""Brings the ledger in line with a node's account, by legal steps alone.

What it answers: which of the ledger's operations turn what it says of a node into what the account
says (`extender.state.accounting`). It decides nothing: the ledger's transition table stands guard
over the account, so that two pods never own one device.

Two phases, `let_go` on every node that changed and then `take` on each: a pod may move between two
of them, and the ledger has a pod on one node only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from extender.state.accounting import Share, Tenure
from extender.state.transitions import DeviceState

if TYPE_CHECKING:
    from extender.state.accounting import Account
    from extender.state.ledger import Ledger
    from extender.state.node_record import NodeRecord

__all__ = ["Standing", "let_go", "take"]

_TENURES = {
    DeviceState.CLAIMED: Tenure.CLAIMED,
    DeviceState.ASSUMED: Tenure.ASSUMED,
    DeviceState.ASSUMED_UNHEALTHY: Tenure.ASSUMED,
    DeviceState.BOUND: Tenure.BOUND,
    DeviceState.BOUND_UNHEALTHY: Tenure.BOUND,
    DeviceState.HELD: Tenure.HELD,
    DeviceState.HELD_UNHEALTHY: Tenure.HELD,
}
_SICK = frozenset(state for state in DeviceState if state.value.endswith("unhealthy"))


@dataclass(frozen=True, slots=True)
class Standing:
    """What the ledger says of a node: who has what, and the mask of the devices that are bad."""

    shares: dict[str, Share]
    sick: int


def let_go(ledger: Ledger, node: str, account: Account) -> Standing:
    """Release what pods have on the node and the account does not say, or says otherwise.

    Returns what is left, for `take`.
    """
    standing = _standing(ledger, node)
    for uid, share in tuple(standing.shares.items()):
        wanted = account.shares.get(uid)
        if wanted is None or not (_is_same(share, wanted) or _is_confirmed(share, wanted)):
            ledger.release(uid)
            del standing.shares[uid]
    return standing


def take(ledger: Ledger, node: NodeRecord, account: Account, standing: Standing) -> None:
    """Take what the account says and the ledger does not, and set the devices' health."""
    had, sick = standing.shares, standing.sick
    wanted = {
        uid: share
        for uid, share in account.shares.items()
        if uid not in had or not _is_same(had[uid], share)
    }
    # The ledger plans no bad device, but a plan made earlier may hold one: its health comes last.
    well = sick & ~node.unhealthy
    for share in wanted.values():
        well |= sick & share.mask
    if well:
        ledger.recover(node.name, _ids(node, well))
    for uid, share in wanted.items():
        _take(ledger, node, uid, share, is_assumed=uid in had)
    if ill := node.unhealthy & ~(sick & ~well):
        ledger.sicken(node.name, _ids(node, ill))


def _take(ledger: Ledger, node: NodeRecord, uid: str, share: Share, *, is_assumed: bool) -> None:
    if share.tenure is Tenure.HELD:
        ledger.hold(uid, node.name, _ids(node, share.mask))
    elif share.tenure is Tenure.CLAIMED:
        ledger.claim(uid, node.name, _ids(node, share.mask))
    else:
        if not is_assumed:
            ids = _ids(node, share.mask)
            ledger.assume(uid, node.name, ids, deadline_s=share.deadline_s)
        if share.tenure is Tenure.BOUND:
            ledger.confirm(uid)


def _standing(ledger: Ledger, node: str) -> Standing:
    masks: dict[str, int] = {}
    tenures: dict[str, Tenure] = {}
    sick = 0
    for i, (_, state, owner) in enumerate(ledger.states(node)):
        if owner is not None:
            masks[owner] = masks.get(owner, 0) | 1 << i
            tenures[owner] = _TENURES[state]
        if state in _SICK:
            sick |= 1 << i
    return Standing({uid: Share(mask, tenures[uid]) for uid, mask in masks.items()}, sick)


def _is_same(share: Share, other: Share) -> bool:
    return share.mask == other.mask and share.tenure is other.tenure


def _is_confirmed(share: Share, wanted: Share) -> bool:
    """Whether all that happened is that the binding was accepted."""
    is_accepted = share.tenure is Tenure.ASSUMED and wanted.tenure is Tenure.BOUND
    return is_accepted and share.mask == wanted.mask


def _ids(node: NodeRecord, mask: int) -> tuple[str, ...]:
    return tuple([one for i, one in enumerate(node.ids) if mask >> i & 1])
