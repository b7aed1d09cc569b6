"""The engine: the verbs over a cluster, and the gateway through which every input reaches them.

Time is an argument and nothing waits; knows no HTTP, no client, no log and no clock. The inputs
that the gateway takes are the values of `extender.engine.events`.
"""

from extender.engine.gateway import Gateway, RatingLimit
from extender.engine.request_reader import NEEDS_NAMES
from extender.engine.verbs import Engine, make_engine

__all__ = ["NEEDS_NAMES", "Engine", "Gateway", "RatingLimit", "make_engine"]
