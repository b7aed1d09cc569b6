"""The exceptions of the extender.

The errors that a caller may see. Ordinary outcomes ("no node fits", "the set is taken") are values,
never exceptions. HTTP codes are not known here (`extender.http.routes`).

    ExtenderError
    ├── WireError         a request body that is not the verb's JSON
    ├── MalformedPod      a pod that the API server would not have accepted (counts)
    ├── UserError         a pod with an invalid GPU request
    ├── ClusterSpecError  a description of the embedded cluster that cannot be built
    ├── CallError         a running extender that cannot be reached
    ├── QueryError        a query of the read API that cannot be answered as it is
    └── DecisionLogError  a decision log that cannot be read
"""

from __future__ import annotations

__all__ = [
    "CallError",
    "ClusterSpecError",
    "DecisionLogError",
    "ExtenderError",
    "MalformedPod",
    "QueryError",
    "UserError",
    "WireError",
]


class ExtenderError(Exception):
    """Any error of the extender; `str()` names object, value and expectation."""


class WireError(ExtenderError):
    """A request body that is not the verb's JSON."""


class MalformedPod(ExtenderError):
    """A pod that the API server would not have accepted: answered as an in-band error."""


class UserError(ExtenderError):
    """A pod that its owner has to correct: answered as a reason, so that the pod stays pending."""


class ClusterSpecError(ExtenderError):
    """A description of the embedded cluster that cannot be built."""


class QueryError(ExtenderError):
    """A query of the read API that cannot be answered as it is."""


class CallError(ExtenderError):
    """A running extender cannot be reached, or answered unexpectedly."""


class DecisionLogError(ExtenderError):
    """A decision log that cannot be read."""
