"""What every command makes of its options: the session, and where it prints."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kubectl_coterie.cluster import ClusterOptions, Session
from kubectl_coterie.options import EXTENDER_URL
from kubectl_coterie.terminal import Output, Progress

if TYPE_CHECKING:
    from argparse import Namespace

__all__ = ["options_of", "output_of", "session_of"]


def options_of(given: Namespace) -> ClusterOptions:
    """What the flags of `kubectl_coterie.options` say of the cluster."""
    return ClusterOptions(
        kubeconfig=given.kubeconfig,
        context=given.context,
        namespace=given.namespace,
        all_namespaces=getattr(given, "all_namespaces", False),
        as_user=given.as_user,
        as_groups=tuple(given.as_groups),
        request_timeout_s=given.request_timeout,
        extender_namespace=given.extender_namespace,
        extender_pod=given.extender_pod,
        extender_url=_extender_url(given),
    )


def _extender_url(given: Namespace) -> str | None:
    """The flag, or the variable where no flag says where the extender is."""
    url: str | None = given.extender_url
    if url or given.extender_namespace or given.extender_pod:
        return url
    return os.environ.get(EXTENDER_URL) or None


def session_of(given: Namespace) -> Session:
    """The session of these flags."""
    return Session(options_of(given), Progress())


def output_of(given: Namespace) -> Output:
    """Standard output in the form of `-o`."""
    return Output(form=given.output, has_header=not getattr(given, "no_headers", False))
