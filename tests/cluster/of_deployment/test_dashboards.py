"""A real Prometheus answers every expression of the dashboards and rules, from the programs' pages.

The pages are those of an engine over a described cluster, on which a pod is placed at each scrape,
and of a plugin that serves a resource; in place of a cluster's they are scraped every second.
"""

from __future__ import annotations

import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import yaml
from prometheus_client import generate_latest

from deploy.monitoring import DASHBOARDS
from extender.observe import ExtenderMetrics
from extender.protocol import Verb
from plugin.observe import PluginMetrics
from tests.cluster.control.manifests import DEPLOY
from tests.cluster.control.processes import Program, free_port
from tests.cluster.programs.build import prometheus as prometheus_program
from tests.live_metrics import idle_metrics
from tests.unit.extender.engines import engine, names
from tests.unit.extender.pods import args, binding, pod

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.cluster

RULES = DEPLOY / "chart" / "files" / "rules.yaml"
RECORDED = [
    rule["record"]
    for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
    if "record" in rule
]
EXPRESSIONS = [
    pytest.param(expr, id=f"{board.uid}: {title}")
    for board in DASHBOARDS
    for section in board.sections
    for title, expr in (
        *((one.title, one.expr) for one in section.stats),
        *((one.title, expr) for one in section.graphs for expr, _ in one.series),
    )
]
WITHIN_S = 60.0


class Cluster:
    """The pages of an extender and a plugin; each page of the extender has one pod more placed."""

    def __init__(self) -> None:
        self._engine = engine()
        self._extender = ExtenderMetrics(self._engine)
        self._extender.add_source(idle_metrics().collect)
        self._plugin = PluginMetrics()
        self._plugin.follow(["nvidia.com/gpu"], is_serving=True)
        self._n_pods = 0
        self._lock = threading.Lock()

    def page(self, path: str) -> bytes:
        """The page of one of them."""
        if path == "/plugin":
            return generate_latest(self._plugin.registry)
        with self._lock:
            self._place()
            return self._extender.render(is_ready=True, now_s=float(self._n_pods))

    def _place(self) -> None:
        """Filter and bind a pod; one of eight GPUs finds no place after the first."""
        every = names(self._engine)
        self._n_pods += 1
        uid, n_gpus = f"u{self._n_pods}", (8 if self._n_pods % 4 == 0 else 2)
        now_s, node = float(self._n_pods), every[self._n_pods % len(every)]
        calls = (
            (Verb.FILTER, args(pod(n_gpus, uid=uid), every)),
            (Verb.BIND, binding(uid, node)),
            (Verb.BIND, b"{}"),
        )
        for verb, body in calls:
            self._extender.observe(self._engine.answer(verb, body, now_s), 0.002)
        if self._n_pods > 4:
            self._engine.end(f"u{self._n_pods - 4}")


class Prometheus:
    """A running Prometheus."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, trust_env=False, timeout=WITHIN_S)

    def is_ready(self) -> bool:
        """Whether it answers queries."""
        try:
            return self._client.get("/-/ready").is_success
        except httpx.TransportError:
            return False

    def query(self, expr: str) -> list[Any]:
        """The series that an expression has now."""
        answer = self._client.get("/api/v1/query", params={"query": expr}).json()
        assert answer["status"] == "success", answer
        result: list[Any] = answer["data"]["result"]
        return result

    def await_series(self, expr: str) -> list[Any]:
        """The same, as soon as there are some."""
        deadline = time.monotonic() + WITHIN_S
        while not (found := self.query(expr)) and time.monotonic() < deadline:
            time.sleep(0.2)
        return found

    def close(self) -> None:
        """Close its connections."""
        self._client.close()


@pytest.fixture(scope="module")
def pages() -> Iterator[int]:
    """The port of the programs' pages."""
    cluster = Cluster()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(cluster.page(self.path))

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's
            """Not a line for each scrape."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def prometheus(pages, tmp_path_factory) -> Iterator[Prometheus]:
    """A Prometheus that scrapes them with the labels of podmonitor.yaml, and has the rules."""
    folder, port = tmp_path_factory.mktemp("prometheus"), free_port()
    jobs = {"coterie-scheduler": "/extender", "coterie-plugin": "/plugin"}
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {
                "job_name": job,
                "metrics_path": path,
                "static_configs": [
                    {"targets": [f"127.0.0.1:{pages}"], "labels": {"node": "n1", "pod": job}}
                ],
            }
            for job, path in jobs.items()
        ],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    running = Prometheus(f"http://127.0.0.1:{port}")
    program = Program(
        name="prometheus",
        command=[
            str(prometheus_program()),
            f"--config.file={folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        log=folder / "log",
        is_ready=running.is_ready,
    )
    program.start()
    yield running
    running.close()
    program.stop()


@pytest.mark.parametrize("expr", EXPRESSIONS)
def test_every_panel_has_series(prometheus, expr):
    """A panel without any looks like a cluster without anything."""
    assert prometheus.await_series(re.sub(r"\$(?:machine|node)", ".*", expr))


@pytest.mark.parametrize("record", RECORDED)
def test_every_recorded_series_is_there(prometheus, record):
    """As the rules make them of the same pages."""
    assert prometheus.await_series(record)


@pytest.mark.parametrize("board", DASHBOARDS, ids=lambda board: board.uid)
def test_the_variable_has_values(prometheus, board):
    """Without one nothing can be chosen, and all panels stay empty."""
    found = prometheus.await_series(f"count by ({board.variable}) ({board.of})")
    assert all(one["metric"][board.variable] for one in found)
    assert found
