"""The logger interface of the shells; `extender.logkeys` names events and fields."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Logger"]


class Logger(Protocol):
    """What we need of structlog's bound logger."""

    def info(self, event: str, **fields: object) -> object:
        """Log an event."""
        ...

    def warning(self, event: str, **fields: object) -> object:
        """Log a fault."""
        ...
