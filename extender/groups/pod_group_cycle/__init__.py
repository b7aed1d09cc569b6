"""Kubernetes' own groups (`spec.schedulingGroup`): what their scheduling cycles count on.

Knows what filter was asked and answered within a cycle, and keeps devices only for members of a
cycle that is being bound. It lets no pod wait.
"""

from extender.groups.pod_group_cycle.pod_groups import BesideSiblings, PodGroups

__all__ = ["BesideSiblings", "PodGroups"]
