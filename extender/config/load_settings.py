"""The extender's effective settings: flag over environment over file over default.

Each is checked by itself and beside the others; an error is one sentence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from extender.config.settings import ExtenderSettings
from kube.errors import SettingsError
from kube.settings import load_fields
from kube.watch import Timing

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["load_settings"]

_TIMING = Timing()
_LONGEST_SILENCE_S = 1.1 * _TIMING.watch_s + _TIMING.margin_s
"""Longest time without an event from a healthy API server: the longest watch, whose end a bookmark
reports, and the margin before a silent one counts as lost."""
_ASSUME_BINDS = 2
"""Binds that a plan outlives at least: the scheduler may retry for as long as one lasts."""
_FREE_PORT = 0
"""The operating system takes a free port for it (ip(7)), another one each time."""


def load_settings(
    flags: Mapping[str, object], environ: Mapping[str, str] | None = None
) -> ExtenderSettings:
    """Compute the effective settings; `flags` holds only those that were given, and `config`.

    Raises `SettingsError`, naming the setting, its value and what was expected.
    """
    settings = load_fields(ExtenderSettings, flags, environ).settings
    _check_together(settings)
    return settings


def _check_together(settings: ExtenderSettings) -> None:
    """Refuse settings of which each is fine, but not beside the others."""
    s = settings
    tls = (s.tls_cert, s.tls_key, s.tls_client_ca)
    is_partly_tls = None in tls and any(tls)
    for is_wrong, msg in (
        (is_partly_tls, "settings tls_cert, tls_key, tls_client_ca: expected all three or none"),
        (
            s.cluster is not None and s.kubeconfig is not None,
            "setting kubeconfig is for a live extender, expected no `cluster`",
        ),
        (
            s.health_port == s.listen_port != _FREE_PORT,
            f"settings listen_port, health_port are both {s.listen_port}, expected two ports",
        ),
        (
            s.read_port not in {None, _FREE_PORT} and s.read_port in {s.listen_port, s.health_port},
            f"setting read_port is {s.read_port}, expected another than listen_port, health_port",
        ),
        (
            s.assume_s <= _ASSUME_BINDS * s.http_timeout_s,
            (
                f"setting assume_s is {s.assume_s:g}, expected more than {_ASSUME_BINDS} times "
                f"http_timeout_s ({s.http_timeout_s:g})"
            ),
        ),
        (
            s.claim_s <= s.http_timeout_s,
            (
                f"setting claim_s is {s.claim_s:g}, expected more than http_timeout_s "
                f"({s.http_timeout_s:g}): binds are held for nearly as long"
            ),
        ),
        (
            s.staleness_bound_s < _LONGEST_SILENCE_S,
            (
                f"setting staleness_bound_s is {s.staleness_bound_s:g}, expected "
                f"{_LONGEST_SILENCE_S:g} or more: an API server may send nothing for as long"
            ),
        ),
    ):
        if is_wrong:
            raise SettingsError(msg)
