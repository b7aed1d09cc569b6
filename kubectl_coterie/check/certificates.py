"""When certificates end: those that the extender shows, and those in the scheduler's configuration.

The extender's are in its metrics. Secrets are not read, since they hold keys too: when
kube-scheduler's own certificate ends is not known here, and the finding says how to look.
"""

from __future__ import annotations

import base64
import binascii
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kube.client import certificate_end_s
from kubectl_coterie.check.findings import Finding, Status
from kubectl_coterie.check.scheduler_config import extender_sections
from topology.model import object_at, text_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubectl_coterie.installation.seen import Seen

__all__ = ["check_certificates"]

CHECK = "certificates"
SOON_S = 14 * 24 * 3600.0
"""As the alert CoterieExtenderCertificateExpires (docs/operations.md)."""
_METRIC = re.compile(
    r"^coterie_extender_certificate_not_after_timestamp_seconds\{certificate=\"(\w+)\"\} (\S+)$",
    re.MULTILINE,
)
_REPLACE = "replace it as it was made (docs/install.md)"


def check_certificates(seen: Seen) -> Iterator[Finding]:
    """A finding for each certificate; one that says so where there is none, but in audit mode."""
    if seen.is_audit:
        return
    found = [*_shown(seen), *_configured(seen), *_schedulers(seen)]
    yield from found or [_none(seen)]


def _none(seen: Seen) -> Finding:
    if not seen.metrics:
        about = "no extender's metrics could be read, which say what certificates it shows"
        return Finding(CHECK, Status.NOT_KNOWN, seen.programs.missing or about)
    return Finding(CHECK, Status.OK, "the extender shows no certificate, it is called on loopback")


def _shown(seen: Seen) -> Iterator[Finding]:
    for pod, read in seen.metrics.items():
        if read.value is None:
            about = f"certificates that the extender in {pod} shows: {read.missing}"
            yield Finding(CHECK, Status.NOT_KNOWN, about)
            continue
        for name, value in _METRIC.findall(read.value):
            yield _judged(f"certificate {name!r} of the extender in {pod}", float(value), seen)


def _configured(seen: Seen) -> Iterator[Finding]:
    """Certificates inside the scheduler's configuration (`caData`, `certData`)."""
    for where, section in extender_sections(seen):
        tls = object_at(section, "tlsConfig")
        for key in ("caData", "certData"):
            text = text_at(tls, key)
            if not text:
                continue
            try:
                pem = base64.b64decode(text, validate=True).decode(errors="replace")
            except binascii.Error:
                pem = ""
            yield _judged(f"{key} in {where}", certificate_end_s(pem) or 0, seen)


def _schedulers(seen: Seen) -> Iterator[Finding]:
    """kube-scheduler's own, which it shows to the extender."""
    for secret in sorted(
        {(one.namespace, name) for one in seen.schedulers for name in one.secrets if "tls" in name}
    ):
        namespace, name = secret
        yield Finding(
            CHECK,
            Status.NOT_KNOWN,
            f"kube-scheduler's own certificate is in Secret {namespace}/{name}, which is not read",
            f"kubectl -n {namespace} get secret {name} -o jsonpath='{{.data.tls\\.crt}}' | "
            "base64 -d | openssl x509 -noout -enddate",
        )


def _judged(what: str, end_s: float, seen: Seen) -> Finding:
    if end_s <= 0:
        return Finding(CHECK, Status.FAILED, f"{what} cannot be read", _REPLACE)
    day = datetime.fromtimestamp(end_s, UTC).strftime("%Y-%m-%d")
    if end_s <= seen.now_s:
        return Finding(CHECK, Status.FAILED, f"{what} ended on {day}", _REPLACE)
    about = f"{what} ends on {day}"
    if end_s - seen.now_s < SOON_S:
        return Finding(CHECK, Status.WARNING, about, _REPLACE)
    return Finding(CHECK, Status.OK, about)
