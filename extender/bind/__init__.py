"""Bind: a pure state machine.

Every step is a value; knows no client and no clock.
"""

from extender.bind.state_machine import Binds
from extender.bind.steps import BindCall, ReadPod, Step, WriteBinding, WriteResult, Written

__all__ = ["BindCall", "Binds", "ReadPod", "Step", "WriteBinding", "WriteResult", "Written"]
