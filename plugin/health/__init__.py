"""Which devices are unhealthy, why, and when they recover.

Knows no vendor library and no gRPC.
"""

from plugin.health.lasting_faults import KnownFaults, still_lasting, with_lasting_faults
from plugin.health.state import QUIET_S, HealthState
from plugin.health.watch import HealthTimes, HealthWatch

__all__ = [
    "QUIET_S",
    "HealthState",
    "HealthTimes",
    "HealthWatch",
    "KnownFaults",
    "still_lasting",
    "with_lasting_faults",
]
