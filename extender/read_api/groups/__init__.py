"""Groups in the read API: who is here, where they are, what they are worth, and why they wait.

Knows the members that have devices, as the nodes' accounts show them, and those that wait; changes
no group and decides nothing.
"""

from extender.read_api.groups.bodies import GroupBody
from extender.read_api.groups.group_table import GroupTable, GroupTexts

__all__ = ["GroupBody", "GroupTable", "GroupTexts"]
