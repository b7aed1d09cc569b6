"""Whether a filter call may be for a member of a group that waits, by the bytes of its body.

Where replicas run, one of them alone knows what is claimed for such pods, so every call must be
looked at before it is read. It never decodes the body: a wrong yes costs one forwarded call.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from topology.annotations import pod_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["may_be_member"]

_NAMES = b'"NodeNames"'
"""The pod stands before it in what Go writes (the fields of `ExtenderArgs`, in their order)."""


def may_be_member(body: bytes, keys: Sequence[str] = (pod_keys.GROUP_SIZE,)) -> bool:
    """Return whether the body has one of these names of annotations or labels as a JSON text.

    A key in `managedFields` ("f:...") or in the text of another annotation does not count.

    >>> may_be_member(b'{"Pod":{"metadata":{"annotations":{"coterie.gpu/group-size":"4"}}}}')
    True
    """
    end = body.find(_NAMES)
    if end < 0:
        end = len(body)
    return any(body.find(json.dumps(key).encode(), 0, end) >= 0 for key in keys)
