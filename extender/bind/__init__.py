"""Bind: a pure state machine.

Every step is a value; knows no client and no clock.
"""

from extender.bind.attempt import BindCall
from extender.bind.bind_planner import BindPlanner
from extender.bind.member_binds import MemberBinds
from extender.bind.state_machine import Binds
from extender.bind.steps import (
    AnyStep,
    HoldBind,
    ReadPod,
    Step,
    WriteBinding,
    WriteResult,
    Written,
)

__all__ = [
    "AnyStep",
    "BindCall",
    "BindPlanner",
    "Binds",
    "HoldBind",
    "MemberBinds",
    "ReadPod",
    "Step",
    "WriteBinding",
    "WriteResult",
    "Written",
]
