"""A report as JSON, and how wide the screen is."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO

    from _typeshed import DataclassInstance

__all__ = ["json_report", "screen_width"]


def screen_width(stream: TextIO, otherwise: int) -> int:
    """Columns of the terminal that a stream is, `otherwise` where it is none or does not say."""
    if not stream.isatty():
        return otherwise
    return shutil.get_terminal_size((otherwise, 0)).columns


def json_report(report: DataclassInstance) -> str:
    """Write a report as one JSON object."""
    return json.dumps(asdict(report), indent=2) + "\n"
