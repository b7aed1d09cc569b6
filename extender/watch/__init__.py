"""Keeps the live state at what the API server reports.

Knows watches and their order; decides nothing about pods or devices.
"""

from extender.watch.injected_requests import InjectedRequests
from extender.watch.node_sync import NodeSink
from extender.watch.pending_watch import PendingMembers, PendingWatch
from extender.watch.pod_reader import Prober
from extender.watch.reflectors import Reflectors
from extender.watch.state_sync import InformerSet, PodSink
from extender.watch.watch_log import WatchLog

__all__ = [
    "InformerSet",
    "InjectedRequests",
    "NodeSink",
    "PendingMembers",
    "PendingWatch",
    "PodSink",
    "Prober",
    "Reflectors",
    "WatchLog",
]
