"""Which devices are unhealthy, why, and when they recover.

Knows marks and times; knows no vendor library and no gRPC.
"""

from plugin.health.book import QUIET_S, HealthBook
from plugin.health.watch import HealthTimes, HealthWatch

__all__ = ["QUIET_S", "HealthBook", "HealthTimes", "HealthWatch"]
