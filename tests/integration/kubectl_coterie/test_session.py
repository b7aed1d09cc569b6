"""A command's way to the extender: kubeconfig, its pod, the port-forward, and what is missing."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import ssl
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from kubectl_coterie.cluster import Change, ClusterOptions, Session
from kubectl_coterie.errors import CliError
from kubectl_coterie.terminal import Progress
from tests.cluster.control.credentials import Authority
from tests.integration.kube.forwarding_server import ForwardingServer
from tests.integration.kube.raw_server import answer, raw_server
from tests.integration.kubectl_coterie.read_api_server import ReadApiServer

SYSTEM = "/api/v1/namespaces/coterie-system/pods"
KUBE_SYSTEM = "/api/v1/namespaces/kube-system/pods"
EVERYWHERE = "/api/v1/pods"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def pod(name="extender-0", namespace="coterie-system", *, is_ready=True, **changed):
    """A pod that serves the read API."""
    metadata = {"name": name, "namespace": namespace} | changed.pop("metadata", {})
    ports = changed.pop("ports", [{"name": "read-api", "containerPort": 8890}])
    return {
        "metadata": metadata,
        "spec": {"containers": [{"name": "other"}, {"name": "extender", "ports": ports}]},
        "status": {
            "phase": "Running",
            "containerStatuses": [{"name": "extender", "ready": is_ready}],
        }
        | changed,
    }


def of_label(label, *pods):
    """Answers a list of pods, which has some of one label alone."""

    def respond(request, _body):
        found = pods if label in request.query["labelSelector"] else ()
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": list(found)})

    return respond


def forbidden(request, _body):
    """Answers as the API server does to who may not."""
    message = f'pods is forbidden: User "jane" cannot list resource "pods" at {request.path}'
    content = {"kind": "Status", "reason": "Forbidden", "code": 403, "message": message}
    return web.json_response(content, status=403)


NONE = of_label("none")


class Cluster:
    """The API server and one read API behind all its pods."""

    def __init__(self, server, read_api, folder):
        self.server, self.read_api, self.folder = server, read_api, folder

    def session(self, **options):
        """A session of it."""
        given = {"kubeconfig": str(self.server.kubeconfig(self.folder)), **options}
        return Session(ClusterOptions(**given), Progress(io.StringIO()))


@asynccontextmanager
async def running(  # the routes of the API server, and the answers of the read API
    folder, *, system=NONE, kube_system=NONE, everywhere=NONE, reviews=None, **answers
):
    """Run it."""
    read_api = ReadApiServer(**answers)
    async with read_api.running():
        server = ForwardingServer(read_api.port)
        server.answer("GET", SYSTEM, system)
        server.answer("GET", KUBE_SYSTEM, kube_system)
        server.answer("GET", EVERYWHERE, everywhere)
        if reviews is not None:
            server.answer("POST", REVIEWS, reviews)
        async with server.running():
            yield Cluster(server, read_api, folder)


def check(folder, test, **cluster):
    """Run a test of a running cluster."""

    async def run():
        async with running(folder, **cluster) as one:
            await test(one)

    asyncio.run(run())


def refused(folder, match, *, options=None, prepare=lambda _: None, **cluster):
    """The read API cannot be had, for this reason."""

    async def test(one):
        prepare(one)
        async with one.session(**(options or {})) as session:
            with pytest.raises(CliError, match=match) as found:
                await (await session.read_api()).get("cluster")
            assert "\n" not in str(found.value)

    check(folder, test, **cluster)


@pytest.mark.parametrize(
    ("cluster", "path"),
    [
        pytest.param(
            {"system": of_label("part-of=coterie", pod())},
            "coterie-system/pods/extender-0",
            id="second scheduler or Service",
        ),
        pytest.param(
            {"kube_system": of_label("kube-scheduler", pod("kube-scheduler-a", "kube-system"))},
            "kube-system/pods/kube-scheduler-a",
            id="beside the scheduler of kubeadm",
        ),
        pytest.param(
            {"everywhere": of_label("part-of=coterie", pod("c-0", "gpu"))},
            "gpu/pods/c-0",
            id="a release in another namespace",
        ),
        pytest.param(
            {"system": forbidden, "everywhere": of_label("part-of=coterie", pod("c-0", "gpu"))},
            "gpu/pods/c-0",
            id="where one namespace may not be listed",
        ),
        pytest.param(
            {"system": of_label("part-of=coterie", pod("a", is_ready=False), pod("b"))},
            "coterie-system/pods/b",
            id="the one that is Ready",
        ),
        pytest.param(
            {"system": of_label("part-of=coterie", pod("a", is_ready=False))},
            "coterie-system/pods/a",
            id="one that is not Ready, where no other is there",
        ),
    ],
)
def test_the_extender_is_found(tmp_path, cluster, path):
    """In each way of running it, and its port is forwarded."""

    async def test(one):
        async with one.session() as session:
            api = await session.read_api()
            assert await session.read_api() is api
            assert await api.get("cluster") == {"pods_pending": 0}
        assert {found.partition("/portforward")[0] for found in one.server.forwarded} == {
            f"/api/v1/namespaces/{path}"
        }

    check(tmp_path, test, **cluster)


def test_only_running_pods_with_the_port_serve_it(tmp_path):
    """A node plugin has the same label; a pod that is deleted goes away."""
    refused(
        tmp_path,
        r"no running pod in coterie-system and kube-system serves .*--extender-namespace",
        system=of_label(
            "part-of=coterie",
            pod(ports=[{"name": "metrics", "containerPort": 1}]),
            pod(phase="Pending"),
            pod(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        ),
    )


def test_a_named_namespace_is_the_only_one(tmp_path):
    """Another installation may be in the cluster."""
    refused(
        tmp_path,
        "no running pod in kube-system serves",
        options={"extender_namespace": "kube-system"},
        system=of_label("part-of=coterie", pod()),
    )


def test_who_may_list_nothing_is_told_the_role(tmp_path):
    """With the API server's own sentence, which names user, verb and resource."""
    refused(
        tmp_path,
        'User "jane" cannot list resource "pods".*Role coterie-reader.*--extender-pod',
        system=forbidden,
        kube_system=forbidden,
        everywhere=forbidden,
    )


def test_another_error_of_a_list_is_the_answer(tmp_path):
    """It is no missing right."""

    def overloaded(_request, _body):
        return web.json_response({"message": "later", "code": 429, "reason": "x"}, status=429)

    refused(tmp_path, "later", system=overloaded)
    refused(tmp_path, "later", everywhere=overloaded)


@pytest.mark.parametrize(
    ("allowed", "verbs"),
    [((), "get and create"), (("get",), "create"), (("create",), "get")],
    ids=["neither verb", "create is missing", "get is missing"],
)
def test_who_may_not_forward_is_told_the_verbs(tmp_path, allowed, verbs):
    """A WebSocket needs two of them from Kubernetes 1.35 on."""

    def review(_request, body):
        spec = json.loads(body)["spec"]["resourceAttributes"]
        assert (spec["resource"], spec["subresource"]) == ("pods", "portforward")
        return web.json_response({"status": {"allowed": spec["verb"] in allowed}})

    refused(
        tmp_path,
        f"you may not {verbs} pods/portforward in namespace coterie-system",
        prepare=lambda one: setattr(one.server, "refuses", 403),
        system=of_label("part-of=coterie", pod()),
        reviews=review,
    )


def test_without_a_review_both_verbs_are_named(tmp_path):
    """An API server may not let the user review."""
    refused(
        tmp_path,
        "you may not get and create pods/portforward",
        prepare=lambda one: setattr(one.server, "refuses", 403),
        system=of_label("part-of=coterie", pod()),
    )


def test_a_failed_forward_says_which_pod(tmp_path):
    """The pod may have gone meanwhile."""
    refused(
        tmp_path,
        "cannot forward port 8890 of pod coterie-system/extender-0: 404 Not Found",
        prepare=lambda one: setattr(one.server, "refuses", 404),
        system=of_label("part-of=coterie", pod()),
    )


def test_a_port_where_nothing_listens_is_told(tmp_path):
    """The kubelet's own sentence."""
    refused(
        tmp_path,
        "the extender did not answer to cluster: .*connection refused.*kubectl coterie check",
        prepare=lambda one: setattr(one.server, "breaks", "connection refused"),
        system=of_label("part-of=coterie", pod()),
    )


@pytest.mark.parametrize(
    ("url", "cause"),
    [
        ("http://127.0.0.1:99999", "http://127.0.0.1:99999/api/v1/cluster is no URL"),
        ("http://nosuch.invalid:80", "no address is known of nosuch.invalid"),
        ("https://127.0.0.1:PORT", "no TLS at 127.0.0.1:\\d+: http:// in the place of https://"),
    ],
)
def test_a_wrong_url_of_the_extender_is_told_by_its_cause(tmp_path, url, cause):
    """Not by the number of an error, which another library's words would be for."""

    async def run():
        async with running(tmp_path) as one:
            at = url.replace("PORT", str(one.read_api.port))
            async with one.session(extender_url=at) as session:
                api = await session.read_api()
                with pytest.raises(CliError, match=f"{cause}.*is --extender-url right"):
                    await api.get("cluster")

    asyncio.run(run())


def test_a_certificate_that_is_not_trusted_is_no_missing_tls(tmp_path):
    """Else its user would be sent from TLS to plain HTTP."""
    files = Authority("own").server("localhost").write(tmp_path, "proxy")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(files.certificate, files.key)

    async def run():
        async with raw_server(lambda _: answer(b"{}"), tls=tls) as server:
            at = f"https://localhost:{server.url.rpartition(':')[2]}"
            async with Session(ClusterOptions(extender_url=at), Progress()) as session:
                api = await session.read_api()
                with pytest.raises(CliError, match=r"certificate of localhost:\d+ is not trusted"):
                    await api.get("cluster")

    asyncio.run(run())


def test_the_replica_that_knows_the_pending_pods_is_asked(tmp_path):
    """kube-scheduler calls one of them; the others have seen no pod."""
    counts = iter((0, 3, 0))

    def cluster(_):
        return web.json_response({"pods_pending": next(counts)})

    async def test(one):
        async with one.session() as session:
            await session.read_api()
        paths = [found.rpartition("/pods/")[2].partition("/")[0] for found in one.server.forwarded]
        assert set(paths) == {"a", "b", "c"}
        assert next(counts, None) is None

    pods = [pod(name) for name in "abc"]
    check(tmp_path, test, system=of_label("part-of=coterie", *pods), cluster=cluster)


def test_a_replica_that_fails_is_passed_over(tmp_path):
    """Another one answers."""
    answers = iter((web.Response(status=500), web.json_response({"pods_pending": 1})))

    async def test(one):
        async with one.session() as session:
            assert (await session.read_api()).url.startswith("http://127.0.0.1:")

    check(
        tmp_path,
        test,
        system=of_label("part-of=coterie", pod("a"), pod("b")),
        cluster=lambda _: next(answers),
    )


def test_where_all_replicas_fail_the_last_fault_is_told(tmp_path):
    """There is nothing else to say."""
    refused(
        tmp_path,
        "the extender answered cluster with 500: broken",
        system=of_label("part-of=coterie", pod("a"), pod("b")),
        cluster=lambda _: web.Response(status=500, text="broken"),
    )


def test_a_local_port_is_the_one_that_was_chosen(tmp_path):
    """A browser's bookmark stays valid."""

    async def test(one):
        taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        port = taken.sockets[0].getsockname()[1]
        async with one.session() as session:
            with pytest.raises(CliError, match=f"port {port} of 127.0.0.1 cannot be used"):
                await session.read_api(port)
        taken.close()
        await taken.wait_closed()
        async with one.session() as session:
            assert (await session.read_api(port)).url == f"http://127.0.0.1:{port}"

    check(tmp_path, test, system=of_label("part-of=coterie", pod("a"), pod("b")))


def test_a_named_pod_is_not_looked_for(tmp_path):
    """Who may forward and not list names it."""

    async def test(one):
        async with one.session(extender_pod="ns/p") as session:
            await (await session.read_api()).get("cluster")
        assert one.server.forwarded[0] == "/api/v1/namespaces/ns/pods/p/portforward?ports=8890"
        async with one.session(extender_pod="p") as session:
            with pytest.raises(CliError, match="--extender-pod is 'p', expected NAMESPACE/NAME"):
                await session.read_api()

    check(tmp_path, test, system=forbidden)


def test_an_address_needs_no_cluster(tmp_path):
    """A read API behind a proxy, or on this machine."""

    async def test(one):
        async with one.session(
            kubeconfig="nowhere", extender_url=f"http://127.0.0.1:{one.read_api.port}/"
        ) as session:
            assert await (await session.read_api()).get("cluster") == {"pods_pending": 0}
            assert session.namespace == "default"
        for page in ("/ui", "/ui/", "/ui/#/node/gpu-0", "/"):
            url = f"http://127.0.0.1:{one.read_api.port}{page}"
            async with one.session(kubeconfig="nowhere", extender_url=url) as session:
                assert await (await session.read_api()).get("cluster") == {"pods_pending": 0}
        async with one.session(extender_url="http://ui/proxy") as session:
            assert (await session.read_api()).url == "http://ui/proxy"
        async with one.session(extender_url="127.0.0.1") as session:
            with pytest.raises(CliError, match=r"--extender-url is '127.0.0.1', expected http"):
                await session.read_api()

    check(tmp_path, test)


def test_lists_of_the_read_api_are_read_page_by_page(tmp_path):
    """With the query of the caller on each."""

    def nodes(request):
        after = request.query.get("continue")
        page = {"items": [{"name": "b"}], "continue": None}
        first = {"items": [{"name": "a"}], "continue": "x"}
        return web.json_response(page if after == "x" else first)

    async def test(one):
        url = f"http://127.0.0.1:{one.read_api.port}"
        async with one.session(extender_url=url) as session:
            api = await session.read_api()
            found = await api.items("nodes", {"machine": "m"})
        assert [node["name"] for node in found] == ["a", "b"]
        assert [query["machine"] for _, query in one.read_api.queries] == ["m", "m"]

    check(tmp_path, test, nodes=nodes)


def test_what_the_read_api_refuses_is_its_own_sentence(tmp_path):
    """A problem's detail; of an older extender, its status."""

    async def test(one):
        url = f"http://127.0.0.1:{one.read_api.port}"
        async with one.session(extender_url=url) as session:
            api = await session.read_api()
            assert await api.find("nodes/x") is None
            with pytest.raises(CliError, match="nodes/x is not known"):
                await api.get("nodes/x")
            with pytest.raises(CliError, match=r"answered old with 404: no.*older than"):
                await api.get("old")
            with pytest.raises(CliError, match="answered old with 404"):
                await api.find("broken")
            with pytest.raises(CliError, match="answer to text is not JSON"):
                await api.get("text")
            assert await api.post("echo", {"a": 1}) == {"ok": True}
            assert one.read_api.posted == [b'{"a": 1}']

    check(
        tmp_path,
        test,
        old=web.Response(status=404, text="no"),
        broken=lambda _: web.Response(status=500, text="answered old with 404"),
        text=lambda _: web.Response(text="{"),
        echo={"ok": True},
    )


def test_changes_are_followed_to_the_end_of_the_stream(tmp_path):
    """Comments between events keep the connection open and mean nothing."""
    event = b'event: change\nid: 7\ndata: {"generation": 7, "nodes": ["a"], "pending": true}\n\n'

    async def test(one):
        one.read_api.stream = b": still here\n\n" + event
        url = f"http://127.0.0.1:{one.read_api.port}"
        async with one.session(extender_url=url) as session:
            api = await session.read_api()
            assert [change async for change in api.changes()] == [
                Change(7, ("a",), is_pending=True)
            ]
            one.read_api.stream = b""
            with pytest.raises(CliError, match="changes is not known"):
                async for _ in api.changes():
                    pass

    check(tmp_path, test)


def test_an_extender_that_went_away_is_told(tmp_path):
    """Nothing listens at the address any more."""

    async def run():
        async with running(tmp_path) as one:
            url = f"http://127.0.0.1:{one.read_api.port}"
        async with one.session(extender_url=url) as session:
            api = await session.read_api()
            with pytest.raises(CliError, match=r"cluster: 127.0.0.1:\d+: connection refused;"):
                await api.get("cluster")
            with pytest.raises(CliError, match="the extender did not answer to changes"):
                async for _ in api.changes():
                    pass

    asyncio.run(run())


def test_objects_of_the_api_server_are_read_page_by_page(tmp_path):
    """As the user, with impersonation where it is wanted."""
    seen = []

    def pods(request, _body):
        seen.append(request.headers.getall("Impersonate-Group", []))
        assert request.headers.get("Impersonate-User") == "jane"
        after = request.query.get("continue", "")
        metadata = {"resourceVersion": "1"} | ({} if after else {"continue": "x"})
        return web.json_response({"metadata": metadata, "items": [{"n": after}]})

    async def test(one):
        async with one.session(as_user="jane", as_groups=("a", "b")) as session:
            assert await session.list_objects("/api/v1/pods") == [{"n": ""}, {"n": "x"}]
        assert seen == [["a", "b"]] * 2

    check(tmp_path, test, everywhere=pods)


@pytest.mark.parametrize(
    ("flags", "user", "groups"),
    [
        pytest.param({}, "jane", ["a", "b"], id="the kubeconfig's"),
        pytest.param({"as_user": "bob"}, "bob", ["a", "b"], id="--as replaces the user alone"),
        pytest.param({"as_groups": ("z",)}, "jane", ["z"], id="--as-group all groups"),
    ],
)
def test_a_kubeconfigs_impersonation_is_sent_with_every_request(tmp_path, flags, user, groups):
    """As kubectl merges it with the flags; without it the user would have other rights."""
    seen = []

    def pods(request, _body):
        names = ("User", "Uid", "Group", "Extra-k")
        seen.append([request.headers.getall(f"Impersonate-{name}") for name in names])
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})

    async def test(one):
        path = one.server.kubeconfig(tmp_path)
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        content["users"][0]["user"] |= {
            "as": "jane",
            "as-uid": "7",
            "as-groups": ["a", "b"],
            "as-user-extra": {"k": ["v"]},
        }
        path = tmp_path / "impersonating"
        path.write_text(yaml.safe_dump(content), encoding="utf-8")
        async with one.session(kubeconfig=str(path), **flags) as session:
            await session.list_objects(EVERYWHERE)
        assert seen == [[[user], ["7"], groups, ["v"]]]

    check(tmp_path, test, everywhere=pods)


def test_a_group_without_a_user_is_refused(tmp_path):
    """As by kubectl; the API server's answer would be an internal error."""

    async def test(one):
        async with one.session(as_groups=("a",)) as session:
            with pytest.raises(CliError, match="given without a user: see --as, --as-group"):
                await session.kube()

    check(tmp_path, test)


def test_a_refused_list_is_the_api_servers_sentence(tmp_path):
    """It names the user and the right."""

    async def test(one):
        async with one.session() as session:
            with pytest.raises(CliError, match='User "jane" cannot list resource "pods"'):
                await session.list_objects("/api/v1/pods")

    check(tmp_path, test, everywhere=forbidden)


def test_an_api_server_that_is_not_there_is_told(tmp_path):
    """With the cause, since a proxy or a name may be wrong."""

    async def run():
        async with running(tmp_path) as one:
            session = one.session()
        async with session:
            with pytest.raises(CliError, match="the API server cannot be reached"):
                await session.read_api()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({"namespace": "a"}, "a", id="the flag"),
        pytest.param({"all_namespaces": True, "namespace": "a"}, None, id="all"),
        pytest.param({}, "ml", id="that of the context"),
    ],
)
def test_the_namespace_is_the_flags_or_the_contexts(tmp_path, options, expected):
    """As kubectl takes it."""
    path = ForwardingServer().kubeconfig(tmp_path, namespace="ml")
    session = Session(ClusterOptions(kubeconfig=str(path), **options), Progress())
    assert session.namespace == expected


def test_a_given_context_has_its_namespace_without_a_current_one(tmp_path):
    """Else the answer would be about pods of another namespace."""
    path = ForwardingServer().kubeconfig(tmp_path, namespace="ml")
    text = path.read_text(encoding="utf-8").replace("current-context: c\n", "")
    path.write_text(text, encoding="utf-8")
    known = Session(ClusterOptions(kubeconfig=str(path), context="c"), Progress())
    assert known.namespace == "ml"
    unknown = Session(ClusterOptions(kubeconfig=str(path), context="typo"), Progress())
    with pytest.raises(CliError, match="it has no context 'typo'; name one"):
        _ = unknown.namespace
    current = Session(ClusterOptions(kubeconfig=str(path)), Progress())
    assert current.namespace == "default"


def test_a_given_context_needs_a_kubeconfig(tmp_path, monkeypatch):
    """With --extender-url too, for its namespace."""
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    session = Session(ClusterOptions(context="c", extender_url="http://127.0.0.1:1"), Progress())
    with pytest.raises(CliError, match="there is no kubeconfig"):
        _ = session.namespace


@pytest.mark.parametrize(
    ("environment", "has_file", "match"),
    [
        pytest.param({}, False, "there is no kubeconfig .*config; name one", id="none at all"),
        pytest.param({"KUBECONFIG": "/nowhere"}, False, "kubeconfig /nowhere", id="not there"),
        pytest.param(
            {"KUBERNETES_SERVICE_HOST": "x"}, False, "in-cluster configuration", id="in a pod"
        ),
        pytest.param({}, True, "kubeconfig .*config: ", id="the user's own, which is empty"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_told(
    tmp_path, monkeypatch, environment, has_file, match
):
    """By its name, and how to name another."""
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    if has_file:
        (tmp_path / ".kube").mkdir()
        (tmp_path / ".kube" / "config").write_text("", encoding="utf-8")

    async def run():
        async with Session(ClusterOptions(), Progress()) as session:
            assert session.namespace == "default"
            with pytest.raises(CliError, match=match):
                await session.kube()

    with contextlib.suppress(ValueError):
        asyncio.run(run())


def test_the_url_of_the_extender_is_no_kubeconfig(tmp_path, monkeypatch):
    """Who gives it and calls what reads the API server is told why it is not enough."""
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)

    async def run():
        options = ClusterOptions(extender_url="http://127.0.0.1:1")
        async with Session(options, Progress()) as session:
            with pytest.raises(CliError, match="KUBECONFIG; --extender-url is not the API server"):
                await session.kube()

    asyncio.run(run())
