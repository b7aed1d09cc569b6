"""What every command makes of its options: the session, and where it prints."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from kubectl_coterie.cluster import ClusterOptions, Session
from kubectl_coterie.terminal import Output, Progress
from topology.cli.program import EXTENDER_URL
from topology.printable import printable

if TYPE_CHECKING:
    from argparse import Namespace

__all__ = ["options_of", "output_of", "session_of"]


def options_of(given: Namespace) -> ClusterOptions:
    """What the flags of `kubectl_coterie.options` say of the cluster."""
    url, url_from = given.extender_url, "--extender-url"
    if url is None and (url := _url_of_environment(given)) is not None:
        url_from = EXTENDER_URL
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
        extender_url=url,
        extender_url_from=url_from,
    )


def _url_of_environment(given: Namespace) -> str | None:
    """The variable's address, where no flag says which cluster or where the extender is."""
    flags = (given.kubeconfig, given.context, given.extender_namespace, given.extender_pod)
    return None if any(flags) else os.environ.get(EXTENDER_URL) or None


def session_of(given: Namespace) -> Session:
    """The session of these flags."""
    options = options_of(given)
    if options.extender_url_from == EXTENDER_URL:
        sys.stderr.write(f"extender: {printable(str(options.extender_url))} ({EXTENDER_URL})\n")
    return Session(options, Progress())


def output_of(given: Namespace) -> Output:
    """Standard output in the form of `-o`."""
    return Output(form=given.output, has_header=not getattr(given, "no_headers", False))
