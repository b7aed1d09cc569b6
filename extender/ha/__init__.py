"""Which replica may write: the rules of the Lease, its loop, and forwarding to the leader.

Knows replicas; knows nothing of what a call requests.
"""

from extender.ha.forward import FORWARDED_FOR, TIME_LEFT, Peer
from extender.ha.leader_routing import ForwardedCall, LeaderRouter, Peers
from extender.ha.lease_loop import Replicas, ReplicaTools
from extender.ha.lease_rules import Election, identity_of

__all__ = [
    "FORWARDED_FOR",
    "TIME_LEFT",
    "Election",
    "ForwardedCall",
    "LeaderRouter",
    "Peer",
    "Peers",
    "ReplicaTools",
    "Replicas",
    "identity_of",
]
