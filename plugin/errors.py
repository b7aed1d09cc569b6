"""The exceptions of the node plugin.

Ordinary outcomes ("the set is not free", "no pod is known") are values, never exceptions. gRPC
codes are known in `plugin.deviceplugin.service` alone.
Each is a `PluginError`, and none derives from another here.
"""

from __future__ import annotations

from topology.errors import TopologyError

__all__ = [
    "READER_ERRORS",
    "CdiError",
    "CheckpointError",
    "KubeletError",
    "MeasurementError",
    "PluginError",
    "ProgramError",
    "ReadingError",
    "RegistrationError",
    "first_plugin_error",
]


class PluginError(Exception):
    """Any error of the plugin; `str()` names object, value and expectation."""


class ReadingError(PluginError):
    """The machine could not be read at all."""


READER_ERRORS = (PluginError, TopologyError, OSError)
"""Errors of a machine's reader where the machine cannot be read; any other is a bug."""


class RegistrationError(PluginError):
    """The kubelet did not take the registration."""


class KubeletError(PluginError):
    """The kubelet did not answer (pods, configuration, PodResources).

    `is_late`: it gave no answer in time, so that the outcome is unknown.
    """

    def __init__(self, message: str, *, is_late: bool = False) -> None:
        super().__init__(message)
        self.is_late = is_late


class CheckpointError(PluginError):
    """The kubelet's checkpoint cannot be read."""


class ProgramError(PluginError):
    """A program that cannot be run, or says that it failed. `output` is what it had printed."""

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message)
        self.output = output


class CdiError(PluginError):
    """A CDI specification that cannot be made or written."""


class MeasurementError(PluginError):
    """A benchmark run that yields no bandwidth."""


def first_plugin_error(errors: ExceptionGroup[Exception]) -> Exception:
    """The first `PluginError`; all errors where there is none."""
    ours = errors.subgroup(PluginError)
    while ours is not None:
        first = ours.exceptions[0]
        if isinstance(first, PluginError):
            return first
        ours = first
    return errors
