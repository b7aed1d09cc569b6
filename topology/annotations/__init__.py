"""The other texts of the contract: pod annotations as a policy, plans, device reports.

Reads and writes texts; values no set.
"""

from topology.annotations.devices_report import (
    DeviceHold,
    DevicesReport,
    LastingFault,
    MissingDevices,
    TopologyManagerPolicy,
    TopologyManagerScope,
    UnhealthyDevice,
    decode_devices,
    encode_devices,
)
from topology.annotations.group import ANY_DOMAIN, GroupWish, PlanGroup, parse_group
from topology.annotations.plan import (
    ContainerPlan,
    Plan,
    decode_allocation,
    decode_plan,
    encode_allocation,
    encode_plan,
)
from topology.annotations.pod_keys import (
    POD_KEYS,
    USER_KEYS,
    Affinity,
    NicRule,
    PlacementPolicy,
    Prefer,
    Strength,
)
from topology.annotations.policy import DEFAULT_POLICY, is_remainder_first, parse_policy

__all__ = [
    "ANY_DOMAIN",
    "DEFAULT_POLICY",
    "POD_KEYS",
    "USER_KEYS",
    "Affinity",
    "ContainerPlan",
    "DeviceHold",
    "DevicesReport",
    "GroupWish",
    "LastingFault",
    "MissingDevices",
    "NicRule",
    "PlacementPolicy",
    "Plan",
    "PlanGroup",
    "Prefer",
    "Strength",
    "TopologyManagerPolicy",
    "TopologyManagerScope",
    "UnhealthyDevice",
    "decode_allocation",
    "decode_devices",
    "decode_plan",
    "encode_allocation",
    "encode_devices",
    "encode_plan",
    "is_remainder_first",
    "parse_group",
    "parse_policy",
]
