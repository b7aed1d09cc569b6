"""The log of a program: JSON lines on standard error.

Each program's `logkeys` names its events and their fields. Nothing here may block on a handler's
lock: lines are written without the standard library's handlers.
"""

from __future__ import annotations

import logging
import sys
from typing import Protocol

import structlog

__all__ = ["Logger", "ProgramLogger", "json_logger"]


class Logger(Protocol):
    """The methods of structlog's bound logger that are used."""

    def debug(self, event: str, **fields: object) -> object:
        """Log a detail."""
        ...

    def info(self, event: str, **fields: object) -> object:
        """Log an event."""
        ...

    def warning(self, event: str, **fields: object) -> object:
        """Log a fault."""
        ...


class ProgramLogger(Logger, Protocol):
    """The log of a program's start and end."""

    def critical(self, event: str, **fields: object) -> object:
        """Log what ends the program."""
        ...


def json_logger(level: str) -> ProgramLogger:
    """The log from this level on."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logger: ProgramLogger = structlog.get_logger()
    return logger
