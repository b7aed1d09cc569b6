"""The read API: what runs where, what is free and what waits, as JSON for people and tools.

Knows the state's accounts and the pods that wait; changes nothing and decides nothing. A walk over
the cluster yields to the event loop (`pacing`), so that the scheduler's calls go first.
"""

from extender.read_api.read_api import ReadApi
from extender.read_api.routes import add_read_api, read_body

__all__ = ["ReadApi", "add_read_api", "read_body"]
