"""NVML's errors, as one exception with NVML's code."""

from __future__ import annotations

from plugin.errors import ReadingError

__all__ = ["NvmlError"]


class NvmlError(ReadingError):
    """NVML said no. `code` is its nvmlReturn_t (nvml.h); 0 where the library itself is missing."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code
