"""Where the API server is and who we are there: a kubeconfig, or what a pod has.

Takes credentials by the official client (`kubernetes.aio`), which runs the exec plugins that a
kubeconfig names. It opens no connection, and never repeats a credential in an error.
"""

from __future__ import annotations

import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client import Configuration

from kube.client.kubeconfig import read_kubeconfig, unusable

if TYPE_CHECKING:
    from pathlib import Path

    from kube.errors import Unreachable

__all__ = ["Endpoint", "load_configuration", "redirect"]

_MAX_CONNECTIONS = 256
"""Binds of a burst and the watches beside each other, without waiting for a free connection."""

_config: Any = config  # untyped
_FAULTS = (
    config.ConfigException,
    OSError,
    # What the client raises where an entry is none of a kubeconfig.
    AttributeError,
    KeyError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server beside the API server that takes the same credentials: the kubelet of a node.

    `url` has no path. `ca_file` holds the CA that must have signed its certificate; None: the CA
    of the API server. `server_name` is the name in the certificate where it is not the url's host.
    `is_verified` False: any certificate will do.
    """

    url: str
    ca_file: Path | None = None
    server_name: str | None = None
    is_verified: bool = True


async def load_configuration(kubeconfig: Path | None, context: str | None) -> Configuration:
    """Load a kubeconfig (several where they are joined as in `KUBECONFIG`), or the pod's own.

    Whom the kubeconfig impersonates is not in it (`Kubeconfig.impersonation`). Raises `Unreachable`
    for a configuration that cannot be used.
    """
    configuration = Configuration(
        connection_pool_maxsize=_MAX_CONNECTIONS,
        # The client's default also reads ~/.netrc, in a thread, before each request.
        client_session_kwargs={"trust_env": False, "cookie_jar": aiohttp.DummyCookieJar()},
    )
    # Go does not enforce all of RFC 5280 either; CAs of real clusters violate parts of it, and
    # Python 3.13 would refuse those. Signatures, names and dates are checked all the same.
    configuration.disable_strict_ssl_verification = True
    try:
        if kubeconfig is None:
            _config.load_incluster_config(configuration)
        else:
            read = read_kubeconfig(kubeconfig, context)
            await _config.load_kube_config_from_dict(
                read.content, context=read.context_name, client_configuration=configuration
            )
    except _FAULTS as error:
        raise _unusable(kubeconfig, error) from error
    if kubeconfig is not None:
        _trim_token(configuration)
        configuration.proxy = configuration.proxy or _proxy(configuration.host)
    return configuration


def redirect(configuration: Configuration, endpoint: Endpoint) -> None:
    """Keep the credentials of a configuration, and send them to another server."""
    configuration.tls_server_name = endpoint.server_name
    configuration.verify_ssl = endpoint.is_verified
    configuration.proxy = None  # the one that leads to the API server
    if endpoint.ca_file is not None:
        configuration.ssl_ca_cert = str(endpoint.ca_file)


def _trim_token(configuration: Configuration) -> None:
    """Token files of people end with a newline, which no header may hold."""
    token = configuration.api_key.get("BearerToken")
    if token is not None:
        configuration.api_key["BearerToken"] = token.strip()


def _proxy(url: str) -> str | None:
    """The proxy that the environment names, as for kubectl; inside a cluster none is wanted."""
    parts = urlsplit(url)
    if urllib.request.proxy_bypass(parts.hostname or ""):
        return None
    return urllib.request.getproxies().get(parts.scheme)


def _unusable(kubeconfig: Path | None, error: Exception) -> Unreachable:
    # Errors of readers repeat what they read, which holds credentials.
    is_safe = isinstance(error, config.ConfigException | OSError)
    return unusable(kubeconfig, str(error) if is_safe else "unreadable")
