"""The exceptions of the node plugin.

Ordinary outcomes ("the set is not free", "no pod is known") are values, never exceptions. gRPC
codes are known in `plugin.deviceplugin.service` alone.
Each is a `PluginError`, and none derives from another here.
"""

from __future__ import annotations

__all__ = [
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


class RegistrationError(PluginError):
    """The kubelet did not take the registration."""


class KubeletError(PluginError):
    """The kubelet did not answer (pods, configuration, PodResources)."""


class CheckpointError(PluginError):
    """The kubelet's checkpoint cannot be read."""


class ProgramError(PluginError):
    """A program that cannot be run, or says that it failed."""


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
