"""The read API over time: a stream of changes, and the history of capacity.

Knows the cluster as the read API shows it, and looks again from time to time; changes nothing.
"""

from extender.read_api.over_time.bodies import ChangeBody, HistoryBody
from extender.read_api.over_time.changes import Changes, Subscription
from extender.read_api.over_time.history import History

__all__ = ["ChangeBody", "Changes", "History", "HistoryBody", "Subscription"]
