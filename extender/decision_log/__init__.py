"""The one gateway for every input, the log of them, and its replay.

Knows every input and its answer by value; knows no HTTP and no client.
"""

from extender.decision_log.gateway import Desk, LiveDesk
from extender.decision_log.writer import DecisionLog

__all__ = ["DecisionLog", "Desk", "LiveDesk"]
