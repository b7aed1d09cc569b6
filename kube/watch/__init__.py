"""Collections of the API server, kept up to date.

Lists and watches; interprets no object.
"""

from kube.watch.backoff import Backoff
from kube.watch.reflector import Counts, Fault, Reflector, Timing

__all__ = ["Backoff", "Counts", "Fault", "Reflector", "Timing"]
