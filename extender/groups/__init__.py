"""Pods of a group: placed together or not at all, near each other.

kube-scheduler places one pod after the other and knows of no group. Until all members are there and
a place for all is free, filter gives each the same constant reason. Then one plan claims devices
for all of them, and filter names to each its own node. kube-scheduler binds each in a goroutine of
its own and counts its CPU and memory meanwhile: bind calls are held until all are there, and only
then is any Binding written. So nothing is bound of a group that does not start; a deadline ends
every claim and every bind that is held.

It decides from the state and from what filter was called with; it reads no clock and no cluster
(facts, figures and what was tried: docs/adr/0028-groups-hold-their-binds.md).
"""

from extender.groups.group import GroupKey
from extender.groups.groups import Groups

__all__ = ["GroupKey", "Groups"]
