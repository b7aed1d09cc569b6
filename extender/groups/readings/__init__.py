"""What others may know of the groups: how each stands, and what became of those that were placed.

For Events, metrics, explanations and the read API; changes no group and decides nothing.
"""

from extender.groups.readings.group_readings import GroupReadings
from extender.groups.readings.journal import GroupOutcome, Journal
from extender.groups.readings.status import GroupStatus, MemberStatus

__all__ = ["GroupOutcome", "GroupReadings", "GroupStatus", "Journal", "MemberStatus"]
