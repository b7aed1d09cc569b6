"""Does at the API server what bind, preempt and requeue need, and reports each end to the gateway.

Awaits and retries within a deadline, and hands the gateway what calls left to do; decides nothing.
"""

from extender.execution.bind import BindDependencies, BindExecutor
from extender.execution.preempt import PreemptDependencies, PreemptExecutor
from extender.execution.rating import rate_deferred
from extender.execution.requeue import Requeuer

__all__ = [
    "BindDependencies",
    "BindExecutor",
    "PreemptDependencies",
    "PreemptExecutor",
    "Requeuer",
    "rate_deferred",
]
