"""What the verbs see of a node: its account as a view, and what a nominated pod would choose there.

It keeps nothing and decides for no pod that is not nominated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from extender.placement import Refusal, plan_bind
from extender.snapshot import make_view, with_masks
from extender.state.node_labels import PRODUCT
from extender.state.node_record import BY_COUNT, mask_of
from topology.topology_manager import manager_of

if TYPE_CHECKING:
    from extender.placement import Rater
    from extender.protocol import PodRequest
    from extender.snapshot import NodeView
    from extender.state.accounting import Account
    from extender.state.machine_types import Kinds
    from extender.state.node_record import NodeRecord, NodeResource

__all__ = ["NodeViews"]


@dataclass(frozen=True, slots=True)
class NodeViews:
    """Makes views of nodes; `old` is what was shown of a node before, None where it is new."""

    kinds: Kinds
    rater: Rater

    def view(
        self, node: NodeRecord, served: NodeResource, account: Account, old: NodeView | None
    ) -> NodeView:
        """One resource of a node; the same object where nothing differs."""
        label, machine, ids = served.label, served.machine, served.ids
        if account.unlocated and machine is not None:
            label, machine = BY_COUNT, None
        manager = manager_of(node.report)
        product = node.labels.values.get(PRODUCT, "")
        kind = self.kinds.kind(label, served.name, machine, manager, served.worth, product)
        free, reserved = account.free, account.claimed
        if old is not None and old.kind is kind and old.ids == ids and old.zone == node.zone:
            return with_masks(old, free=free, reserved=reserved)
        return make_view(
            node.name, zone=node.zone, kind=kind, ids=ids, free=free, reserved=reserved
        )

    def choose(
        self,
        node: NodeRecord,
        served: NodeResource,
        old: NodeView | None,
        account: Account,
        request: PodRequest,
    ) -> int:
        """The set that a nominated pod would get now, as a mask; 0 for none."""
        view = self.view(node, served, account, old)
        plan = plan_bind(request, view, rater=self.rater, generation=0)
        return 0 if isinstance(plan, Refusal) else mask_of(plan.ids, served.positions)
