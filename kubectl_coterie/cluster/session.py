"""A command's connections: the API server as the user, and the extender's read API through it.

The read API is looked for only where a command needs it, so that an audit works without an
extender. With replicas each has seen only the filter calls that came to it; the one that knows the
most pending pods is asked.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from kube.client import (
    Impersonation,
    Page,
    PortForward,
    Request,
    Transport,
    read_kubeconfig,
)
from kube.errors import KubeError, Unreachable
from kubectl_coterie.cluster.find_extender import ExtenderPod, find_extender_pods
from kubectl_coterie.cluster.read_api import ReadApiClient
from kubectl_coterie.cluster.rights import missing_forward_rights
from kubectl_coterie.errors import CliError
from topology.errors import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kubectl_coterie.cluster.options import ClusterOptions
    from kubectl_coterie.terminal import Progress

__all__ = ["Session"]

READ_PORT = 8890
"""The setting `read_port` of the chart."""
_PAGE = re.compile(r"^(https?://[^/]+.*?)/ui(?:/.*)?$")
"""The address of the page, before which is that of the read API."""
_LIST_SIZE = 500
_REFUSED = frozenset({401, 403})


class Session:
    """While its `async with` lasts; opens each connection when it is first needed."""

    def __init__(self, options: ClusterOptions, progress: Progress) -> None:
        self.options = options
        self.progress = progress
        self._stack = contextlib.AsyncExitStack()
        self._transport: Transport | None = None
        self._read_api: ReadApiClient | None = None

    async def __aenter__(self) -> Self:
        """Nothing is opened yet."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close all connections and forwarded ports."""
        await self._stack.aclose()

    @property
    def namespace(self) -> str | None:
        """The namespace of `-n`, else of the context, else `default`; None: all of them.

        Raises `CliError` where a context is given that cannot be read.
        """
        options = self.options
        if options.all_namespaces:
            return None
        if options.namespace is not None:
            return options.namespace
        named = ""
        try:
            kubeconfig = self._kubeconfig()
            if kubeconfig is not None:
                named = read_kubeconfig(kubeconfig, options.context).namespace
        except (CliError, Unreachable) as error:
            if options.context:
                cause = _sentence(error) if isinstance(error, Unreachable) else str(error)
                raise CliError(cause) from error  # else: an --extender-url needs no kubeconfig
        return named or "default"

    async def kube(self) -> Transport:
        """The API server, as the user. Raises `CliError`."""
        if self._transport is None:
            kubeconfig = self._kubeconfig()
            try:
                self._transport = await Transport.connect(
                    kubeconfig,
                    context=self.options.context,
                    user_agent="kubectl-coterie",
                    headers=self._impersonation(kubeconfig),
                )
            except KubeError as error:
                raise CliError(_sentence(error)) from error
            self._stack.push_async_callback(self._transport.close)
        return self._transport

    async def list_objects(
        self, path: str, query: Mapping[str, str] | None = None
    ) -> list[Mapping[str, object]]:
        """All objects of a list of the API server. Raises `CliError`."""
        kube = await self.kube()
        found: list[Mapping[str, object]] = []
        page_query = {"limit": str(_LIST_SIZE), **(query or {})}
        async with self.progress.step("reading from the API server"):
            while True:
                request = Request("GET", path, self.options.request_timeout_s, query=page_query)
                try:
                    page = Page(await kube.request(request))
                    found.extend(page)
                except KubeError as error:
                    raise CliError(_sentence(error)) from error
                if not page.continue_token:
                    return found
                page_query["continue"] = page.continue_token

    async def read_api(self, local_port: int = 0) -> ReadApiClient:
        """The extender's read API, at a port of this machine (0: a free one). Raises `CliError`."""
        if self._read_api is None:
            if self.options.extender_url is not None:
                self._read_api = await self._client(self.options.extender_url)
            else:
                async with self.progress.step("looking for the extender"):
                    self._read_api = await self._forwarded(local_port)
        return self._read_api

    async def pod_port(self, namespace: str, name: str, port: int) -> ReadApiClient:
        """A client of another port of a pod, by a port-forward. Raises `CliError`."""
        return await self._forward(ExtenderPod(namespace, name, port))

    async def _client(self, url: str, forward: PortForward | None = None) -> ReadApiClient:
        if not url.startswith(("http://", "https://")):
            msg = f"{self.options.extender_url_from} is {quote(url)}, expected http://host:port"
            raise CliError(msg)
        client = ReadApiClient(
            _PAGE.sub(r"\1", url),
            timeout_s=self.options.request_timeout_s,
            hint=f"is {self.options.extender_url_from} right?"
            if forward is None
            else "`kubectl coterie check` looks at its pods",
            fault=lambda: forward and forward.fault,
        )
        return await self._stack.enter_async_context(client)

    async def _forwarded(self, local_port: int) -> ReadApiClient:
        """The replica that knows the most pending pods, of those that are Ready."""
        pods = await self._pods()
        ready = [pod for pod in pods if pod.is_ready] or pods[:1]
        if local_port:
            return await self._forward(ready[0], local_port)
        found: list[tuple[int, ReadApiClient]] = []
        fault: CliError | None = None
        for pod in ready:
            try:
                client = await self._forward(pod)
                if len(ready) == 1:
                    return client
                found.append(((await client.get("cluster"))["pods_pending"], client))
            except CliError as error:
                fault = error
        if not found and fault is not None:
            raise fault
        return max(found, key=lambda one: one[0])[1]

    async def _pods(self) -> list[ExtenderPod]:
        options = self.options
        if options.extender_pod is not None:
            namespace, slash, name = options.extender_pod.partition("/")
            if not (namespace and slash and name):
                msg = f"--extender-pod is {quote(options.extender_pod)}, expected NAMESPACE/NAME"
                raise CliError(msg)
            return [ExtenderPod(namespace, name, READ_PORT)]
        try:
            return await find_extender_pods(
                await self.kube(), options.extender_namespace, options.request_timeout_s
            )
        except KubeError as error:
            raise CliError(_sentence(error)) from error

    async def _forward(self, pod: ExtenderPod, local_port: int = 0) -> ReadApiClient:
        kube = await self.kube()
        forward = PortForward(
            kube, namespace=pod.namespace, pod=pod.name, port=pod.port, local_port=local_port
        )
        try:
            await self._stack.enter_async_context(forward)
        except KubeError as error:
            raise CliError(await self._why(error, pod)) from error
        except OSError as error:
            msg = f"port {local_port} of 127.0.0.1 cannot be used: {error.strerror}; give another"
            raise CliError(msg) from error
        return await self._client(f"http://127.0.0.1:{forward.local_port}", forward)

    async def _why(self, error: KubeError, pod: ExtenderPod) -> str:
        """Why no port of a pod can be forwarded: a missing right is named."""
        where = f"{pod.namespace}/{pod.name}"
        if error.status not in _REFUSED:
            return f"cannot forward port {pod.port} of pod {where}: {_sentence(error)}"
        kube = await self.kube()
        verbs = await missing_forward_rights(kube, pod.namespace, self.options.request_timeout_s)
        verb = " and ".join(verbs) or "get and create"
        return (
            f"you may not {verb} pods/portforward in namespace {pod.namespace}, which reaches the "
            f"extender in pod {where}; an administrator can bind you to the Role coterie-reader "
            "there"
        )

    def _impersonation(self, kubeconfig: Path | None) -> list[tuple[str, str]]:
        """The headers for `--as` and `--as-group`, and for the kubeconfig's user where not given.

        Each flag replaces its own field alone (`getAuthInfo` of client-go v0.36.3,
        tools/clientcmd/client_config.go, with the flags of overrides.go). Raises `CliError`.
        """
        options = self.options
        named = Impersonation()
        if kubeconfig is not None:
            named = read_kubeconfig(kubeconfig, options.context).impersonation
        wanted = replace(
            named,
            user=options.as_user or named.user,
            groups=options.as_groups or named.groups,
        )
        try:
            return wanted.headers()
        except ValueError as error:
            msg = f"{error}: see --as, --as-group and the kubeconfig's user"
            raise CliError(msg) from error

    def _kubeconfig(self) -> Path | None:
        """Files as kubectl takes them; None in a pod that has none. Raises `CliError`."""
        given = self.options.kubeconfig or os.environ.get("KUBECONFIG")
        if given:
            return Path(given)
        users = Path.home() / ".kube/config"
        if users.exists():
            return users
        if "KUBERNETES_SERVICE_HOST" in os.environ:
            return None
        why = ""
        if self.options.extender_url is not None:
            why = f"; {self.options.extender_url_from} is not the API server"
        msg = f"there is no kubeconfig {users}; name one with --kubeconfig or in KUBECONFIG{why}"
        raise CliError(msg)


def _sentence(error: KubeError) -> str:
    if error.status == 0 and error.reason == "BadConfiguration":
        return f"{error.detail}; name one with --kubeconfig, or a context with --context"
    if error.status == 0:
        return f"the API server cannot be reached ({error.reason}): {error.detail}"
    return error.detail or str(error)
