"""NVML's errors, as one exception with NVML's code."""

from __future__ import annotations

from plugin.errors import ReadingError

__all__ = ["NvmlError"]


class NvmlError(ReadingError):
    """A call of NVML failed. `code` is its nvmlReturn_t (nvml.h), 0 without the library."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code
