"""Does at the API server what the engine's steps ask for: bind, preempt, requeue.

Awaits and retries within a deadline; decides nothing.
"""

from extender.execution.bind import Binder, BindTools, Bound
from extender.execution.preempt import Preempter, PreemptTools
from extender.execution.requeue import Waker

__all__ = ["BindTools", "Binder", "Bound", "PreemptTools", "Preempter", "Waker"]
