"""What ends a command early: one sentence that says what is wrong and what to do next."""

from __future__ import annotations

__all__ = ["CliError"]


class CliError(Exception):
    """A command cannot do what was requested; `str()` is what standard error shows."""
