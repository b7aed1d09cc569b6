"""The log of every event that reached the gateway and what it led to, and its replay.

Knows events by value; knows no HTTP and no client.
"""

from extender.decision_log.writer import DecisionLog

__all__ = ["DecisionLog"]
