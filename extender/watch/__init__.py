"""Keeps the live state at what the API server reports.

Knows watches and their order; decides nothing about pods or devices.
"""

from extender.watch.node_sync import NodeSink, NodeTools
from extender.watch.pod_reader import Prober, ProbeTools
from extender.watch.state_sync import Feed, FeedTools, NominatedSink, PodSink
from extender.watch.watch_log import WatchLog

__all__ = [
    "Feed",
    "FeedTools",
    "NodeSink",
    "NodeTools",
    "NominatedSink",
    "PodSink",
    "ProbeTools",
    "Prober",
    "WatchLog",
]
