"""Which cluster, as whom, and where the extender is: what the shared flags say."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ClusterOptions"]


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The flags that every command has; None where one was not given.

    `extender_url` is the address of a read API that needs no port-forward, and `extender_url_from`
    the flag or variable that has it; `extender_pod` names
    the extender's pod, NAMESPACE/NAME, so that nothing has to be listed.
    """

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
    all_namespaces: bool = False
    as_user: str | None = None
    as_groups: tuple[str, ...] = ()
    request_timeout_s: float = 30.0
    extender_namespace: str | None = None
    extender_pod: str | None = None
    extender_url: str | None = None
    extender_url_from: str = "--extender-url"
