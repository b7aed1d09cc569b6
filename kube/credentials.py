"""Where the API server is, and what is shown to it.

What it answers: the client's configuration, out of a kubeconfig or of what a pod is given. Reading
them, with exec plugins and tokens that are read anew, is the official client's.

What it must never do: repeat a credential in an error.
"""

from __future__ import annotations

import urllib.request
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import aiohttp
import yaml

from kube.aio_client import Configuration, config
from kube.errors import Unreachable, cut

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_configuration"]

_config: Any = config  # untyped


async def read_configuration(
    kubeconfig: Path | None, context: str | None, *, n_connections: int
) -> Configuration:
    """Read a kubeconfig file, or what the pod we run in was given if None.

    `context`: another than the file's own. `n_connections` bounds those to one server. Raises
    `Unreachable` for what cannot be used.
    """
    configuration = Configuration(
        connection_pool_maxsize=n_connections,
        # The client's default also reads ~/.netrc, in a thread, before each request.
        client_session_kwargs={"trust_env": False, "cookie_jar": aiohttp.DummyCookieJar()},
    )
    # Go does not ask for RFC 5280's formalities either; CAs of real clusters lack some of them,
    # and Python 3.13 would refuse those. Signatures, names and dates are checked all the same.
    configuration.disable_strict_ssl_verification = True
    try:
        if kubeconfig is None:
            _config.load_incluster_config(configuration)
        else:
            await _config.load_kube_config(
                str(kubeconfig),
                context=context,
                client_configuration=configuration,
                persist_config=False,
            )
    except (
        config.ConfigException,
        yaml.YAMLError,
        OSError,
        # What the client raises where a file is missing, empty, or no kubeconfig at all.
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
    ) as error:
        where = "in-cluster configuration" if kubeconfig is None else f"kubeconfig {kubeconfig}"
        # Errors of readers repeat what they read, which holds credentials; the client's own name
        # the place by the whole entry.
        is_told = isinstance(error, config.ConfigException | OSError)
        told = str(error).partition("{")[0] if is_told else "unreadable"
        raise Unreachable(0, "BadConfiguration", cut(f"{where}: {told}")) from error
    if kubeconfig is not None:
        _trim_token(configuration)
        configuration.proxy = configuration.proxy or _proxy(configuration.host)
    return configuration


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
