"""What the routes for people and tools respond beside bodies that other packages make."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

__all__ = ["Problem", "State"]


class Problem(BaseModel):
    """An error (RFC 9457, problem details); `detail` says what is wrong."""

    type: Literal["about:blank"] = "about:blank"
    title: str
    status: int
    detail: str


class State(BaseModel):
    """Generation, readiness and counts; `devices` by state, `unschedulable` pods by reason."""

    generation: int
    is_ready: bool
    n_nodes: int
    n_pods: int
    devices: dict[str, int]
    unschedulable: dict[str, int]
