"""RBAC counted from the code: every request that the extender makes, not one permission more."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from kube.client import ApiServer, Binding, ObjectEvent, PortForward, Transport
from kube.errors import KubeError
from kube.objects import ObjectKey
from kube.watch import Reflector, watches
from kubectl_coterie.cluster.find_extender import find_extender_pods
from kubectl_coterie.errors import CliError
from tests.cluster.control.manifests import DEPLOY, Mode, documents

if TYPE_CHECKING:
    from collections.abc import Callable

    from kube.watch.reflector import Source

pytestmark = pytest.mark.cluster

EXTENDER = DEPLOY.parent / "extender"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
POD = ObjectKey("ns", "p", "u")
EVENT = ObjectEvent(
    about=POD,
    is_warning=True,
    reason="Reason",
    message="text",
    at=NOW,
    component="coterie",
    instance="me",
    key="4f",
)
CALLS = {
    "bind": lambda s: s.bind(Binding(POD, "1", "n", {})),
    "get_pod": lambda s: s.get_pod("ns", "p"),
    "get_allocatable": lambda s: s.get_allocatable("n"),
    "list_pods_on": lambda s: s.list_pods_on("n"),
    "list_pdbs": lambda s: s.list_pdbs(),
    "annotate_pod": lambda s: s.annotate_pod("ns", "p", "u", {}),
    "create_event": lambda s: s.create_event(EVENT),
}
SOURCES: dict[str, Callable[[], Source[Any]]] = {
    "nodes": watches.nodes,
    "assigned_pods": lambda: watches.assigned_pods(["nvidia.com/gpu"]),
    "nominated_pods": watches.nominated_pods,
    "pending_pods": watches.pending_pods,
}
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Recorder:
    """An API server that is empty, refuses every write and records its requests."""

    def __init__(self):
        self.seen = set()
        self.is_watched = asyncio.Event()

    async def answer(self, request):
        """Answer as little as lets the caller end."""
        permission = _permission(request.method, request.path, request.query)
        self.seen.add(permission)
        if permission[0] == "list":
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})
        if permission[0] == "watch":
            self.is_watched.set()
        return web.json_response({"reason": "NotFound"}, status=404)


class DiscardingSink:
    """A sink that discards everything."""

    async def replace(self, objects):
        """Take all."""

    def seen(self, one):
        """Take one."""

    def gone(self, key):
        """Lose one."""

    def unread(self, key, reason):
        """Take none."""

    def failed(self, fault):
        """Take a failure."""


def _permission(method, path, query):
    """Verb, group and resource, as the API server reads a request (apiserver, RequestInfo)."""
    parts = path.strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    if rest[0] == "namespaces" and len(rest) > 2:
        rest = rest[2:]
    resource, *more = rest  # then a name, then a subresource
    read = "get" if more else ("watch" if query.get("watch") == "true" else "list")
    return VERBS.get(method, read), group, "/".join([resource, *more[1:]])


def granted(template, kind, *values):
    """All permissions that the roles of a template grant, one by one."""
    return {
        (verb, group, resource)
        for role in documents(template, Mode.SECOND_SCHEDULER.value, *values)
        if role["kind"] == kind
        for rule in role["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


async def _extenders_requests(transport, recorder):
    server = ApiServer(transport)
    for call in CALLS.values():
        with contextlib.suppress(KubeError):
            await call(server)
    for source in SOURCES.values():
        recorder.is_watched.clear()
        running = asyncio.ensure_future(Reflector(transport, source(), DiscardingSink()).run())
        await recorder.is_watched.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def _readers_requests(transport, _recorder):
    with contextlib.suppress(CliError):
        await find_extender_pods(transport, None, 10.0)
    with contextlib.suppress(KubeError):
        async with PortForward(transport, namespace="ns", pod="p", port=1):
            pass


async def _ask(folder, ask):
    recorder = Recorder()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", recorder.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "clusters": [{"name": "c", "cluster": {"server": f"http://{host}:{port}"}}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "c",
            }
        )
    )
    transport = await Transport.connect(kubeconfig)
    try:
        await ask(transport, recorder)
    finally:
        await transport.close()
        await runner.cleanup()
    return recorder.seen


@pytest.fixture(scope="module")
def requests(tmp_path_factory):
    """All requests that the extender makes to an API server."""
    return asyncio.run(_ask(tmp_path_factory.mktemp("kube"), _extenders_requests))


def test_every_call_is_counted():
    """A method or a source that the extender comes to use must not escape the count."""
    methods = {
        name
        for name, _ in inspect.getmembers(ApiServer, inspect.iscoroutinefunction)
        if not name.startswith("_")
    }
    named = {
        node.attr
        for path in EXTENDER.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
    }
    assert methods & named == CALLS.keys()
    assert set(watches.__all__) & named == SOURCES.keys()


def test_roles_are_what_the_code_needs(requests):
    """A permission too few fails in production; one too many is an attacker's."""
    assert granted("rights/extender-rbac", "ClusterRole") == requests


def test_the_readers_role_is_what_a_port_forward_needs(tmp_path):
    """What `kubectl coterie` requests, and what kubectl's own port-forward does besides.

    kubectl reads the pod first, and opens the forward with GET or POST. The API server takes the
    GET of a WebSocket for `create` too from Kubernetes 1.35 on
    (AuthorizePodWebsocketUpgradeCreatePermission).
    """
    requests = asyncio.run(_ask(tmp_path, _readers_requests))
    assert requests == {("list", "", "pods"), ("get", "", "pods/portforward")}
    kubectl = {("get", "", "pods"), ("create", "", "pods/portforward")}
    assert granted("rights/reader-rbac", "Role") == requests | kubectl


def test_no_one_is_bound_to_the_readers_role():
    """Who may read is for the cluster's administrators to say."""
    assert [one["kind"] for one in documents("rights/reader-rbac")] == ["Role"]
