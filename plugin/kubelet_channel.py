"""How the kubelet's gRPC sockets are reached."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc.aio

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["kubelet_channel"]

_OPTIONS = (
    # Channels to one address share their connection, and how long it waits after a refusal. A
    # kubelet that has just come back must not be waited for as one that is gone.
    ("grpc.use_local_subchannel_pool", 1),
)


def kubelet_channel(socket: Path) -> grpc.aio.Channel:
    """A connection of its own, for one request: a restarted kubelet is reached at once."""
    return grpc.aio.insecure_channel(f"unix:{socket}", options=_OPTIONS)
