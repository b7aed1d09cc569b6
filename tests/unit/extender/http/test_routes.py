"""Routes and status codes, over ASGI."""

from __future__ import annotations

import asyncio
import io
import json
import re
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from extender.decision_log import DecisionLog
from extender.decision_log.replay import replay
from extender.engine import Gateway, make_engine
from extender.engine.events import PodDeleted
from extender.http.responses import Problem
from extender.http.routes import create_app
from extender.http.verbs import Dependencies
from extender.observe import ExtenderMetrics
from tests.unit.extender.engines import RULES, Shell, engine, see_cluster, spec
from tests.unit.extender.pods import args, binding, pod
from tests.unit.extender.shells import Log

if TYPE_CHECKING:
    from extender.engine import Engine
    from extender.errors import DecisionLogError

NODES = ["dgx-1-v100-0", "dgx-1-v100-1", "8x-l4-0"]
LIMIT = 100_000


class Served:
    """An application, its log, and calls to it."""

    def __init__(
        self,
        engine: Engine,
        decisions: io.StringIO | None = None,
        *,
        logs_answers: bool = True,
    ) -> None:
        self.engine = engine
        self.log = Log()
        self.ended: list[DecisionLogError] = []
        ticks = iter(range(1_000_000))
        record = None
        if decisions is not None:
            record = DecisionLog(decisions, engine.rules, self.ended.append).record
        self.gateway = Gateway(engine, record=record)
        self.app = create_app(
            Dependencies(
                gateway=self.gateway,
                verbs=Shell(self.gateway),
                metrics=ExtenderMetrics(engine),
                log=self.log,
                clock=lambda: 1000.0,
                timer=lambda: next(ticks) * 0.001,
                body_limit_bytes=LIMIT,
                is_ready=lambda: engine.is_ready(1000.0),
                logs_answers=logs_answers,
            )
        )

    def call(self, method: str, path: str, content: bytes | None = None) -> httpx.Response:
        """One request."""

        async def go() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
                return await client.request(method, path, content=content)

        return asyncio.run(go())

    def post(self, verb: str, content: bytes) -> httpx.Response:
        """One verb."""
        return self.call("POST", f"/{verb}", content)


@pytest.fixture
def served() -> Served:
    """Two V100 machines and one without NVLink."""
    return Served(engine())


def test_a_pod_goes_through_all_verbs(served):
    """As kube-scheduler calls them; every answer has a Content-Length."""
    content = pod(4, affinity="nvlink")
    filtered = served.post("filter", args(content, NODES))
    scored = served.post("prioritize", args(content, filtered.json()["NodeNames"]))
    best = max(scored.json(), key=lambda entry: entry["Score"])["Host"]
    bound = served.post("bind", binding("u1", best))
    for response in (filtered, scored, bound):
        assert response.status_code == 200
        assert response.headers["content-type"] == "application/json"
        assert int(response.headers["content-length"]) == len(response.content)
    assert bound.json() == {"Error": ""}
    assert served.call("GET", "/state").json()["devices"]["bound"] == 4
    served.gateway.handle(PodDeleted("u1"))
    assert served.call("GET", "/state").json()["devices"]["bound"] == 0


@pytest.mark.parametrize("verb", ["filter", "prioritize", "bind"])
def test_a_slash_at_the_end_leads_to_the_verb(served, verb):
    """As where `filterVerb` has one: Go's client sends the body again (307)."""
    answer = served.post(f"{verb}/", b"{}")
    assert (answer.status_code, answer.headers["location"]) == (307, f"http://x/{verb}")


@pytest.mark.parametrize(
    ("verb", "body", "status", "field"),
    [
        pytest.param("filter", b"{", 200, "Error", id="filter answers in-band"),
        pytest.param("bind", b"{", 200, "Error", id="bind answers in-band"),
        pytest.param("prioritize", b"{", 400, "error", id="prioritize has no field for it"),
        pytest.param("explain", b"{", 400, "error", id="explain is ours"),
        pytest.param("filter", b"{" * (LIMIT + 1), 200, "Error", id="too large a filter"),
        pytest.param("bind", b"{" * (LIMIT + 1), 200, "Error", id="too large a bind"),
        pytest.param("prioritize", b"{" * (LIMIT + 1), 413, "error", id="too large a prioritize"),
        pytest.param("filter", args(pod(1), None), 200, "Error", id="NodeNames null"),
        pytest.param("prioritize", args(pod(1), None), 400, "error", id="NodeNames null, again"),
    ],
)
def test_bad_input_is_reported_where_the_caller_reads_it(served, verb, body, status, field):
    """The scheduler reads only bodies of 200."""
    response = served.post(verb, body)
    assert response.status_code == status
    assert response.json()[field]
    assert served.log.lines[-1]["outcome"] == "failed"


def test_stale_state_is_not_ready(served):
    """Alive all the same: a restart would not help."""
    assert served.call("GET", "/readyz").status_code == 200
    assert "coterie_extender_ready 1.0\n" in served.call("GET", "/metrics").text
    served.engine.cluster.set_freshness(is_synced=False, observed_at_s=None)
    assert served.call("GET", "/readyz").status_code == 503
    assert "coterie_extender_ready 0.0\n" in served.call("GET", "/metrics").text
    assert served.call("GET", "/livez").text == "ok"
    assert served.post("prioritize", args(pod(1), NODES)).status_code == 503
    assert served.call("GET", "/state").json()["is_ready"] is False


def test_explain_answers_for_every_node(served):
    """Over HTTP as in the engine."""
    explained = served.post("explain", json.dumps(pod(2)).encode()).json()
    assert {node["node"] for node in explained["nodes"]} == set(NODES)


def test_other_methods_and_paths_are_refused(served):
    """The scheduler's verbs are POST alone; elsewhere a refusal is problem details (RFC 9457)."""
    refused = served.call("GET", "/explain")
    assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
    for method, path, status in (("GET", "/nothing", 404), ("POST", "/state", 405)):
        refused = served.call(method, path)
        assert refused.headers["content-type"] == "application/problem+json"
        assert Problem.model_validate(refused.json()).status == refused.status_code == status
        assert refused.headers.get("allow") == {"/state": "GET"}.get(path)


def test_a_pod_that_is_not_there_is_not_explained(served):
    """As problem details (RFC 9457)."""
    refused = served.call("GET", "/explain/default/train")
    assert refused.status_code == 404
    assert refused.headers["content-type"] == "application/problem+json"
    problem = Problem.model_validate(refused.json())
    assert (problem.title, problem.status) == ("Not Found", 404)
    assert "default/train" in problem.detail


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz", "/metrics"])
def test_health_answers_head_as_well(served, path):
    """Load balancers and uptime checks use it."""
    assert served.call("HEAD", path).status_code == 200


def test_the_description_lists_every_route_for_people_and_tools(served):
    """Clients are made from it; each response has a type, and errors are problem details."""
    described = served.call("GET", "/openapi.json").json()
    assert set(described["paths"]) == {
        *("/livez", "/readyz", "/healthz", "/metrics", "/state", "/state/nodes"),
        "/explain/{namespace}/{name}",
    }
    assert "docs/extender-wire.md" in described["info"]["description"]
    for operations in described["paths"].values():
        for operation in operations.values():
            assert operation["description"]
            assert set(operation["responses"]) == {"200", "default"}
            (content,) = operation["responses"]["200"]["content"].values()
            assert content["schema"]


def test_the_page_of_the_description_loads_nothing(served):
    """Clusters without a way to the net must be able to show it."""
    page = served.call("GET", "/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "<code>GET /state/nodes</code>" in page.text
    assert "<code>POST /filter</code>" in page.text
    assert not re.search(r"https?:|<script|<link|src=|`", page.text)


def test_metrics_count_answers_and_show_sizes(served):
    """Labels are closed sets that begin at zero; the state is read when scraped."""
    served.post("filter", args(pod(4), NODES))
    served.post("bind", binding("u1", "dgx-1-v100-0"))
    served.post("filter", args(pod(9, uid="u2"), NODES))
    served.post("filter", b"{")
    text = served.call("GET", "/metrics").text
    bandwidth = "coterie_extender_placed_bandwidth_bytes_per_second"
    assert 'coterie_extender_build_info{revision="' in text
    assert "_created" not in text
    for line in (
        'coterie_extender_answers_total{outcome="ok",reason="",verb="filter"} 1.0',
        'coterie_extender_answers_total{outcome="refused",reason="too_few_gpus",verb="filter"} 1.0',
        'coterie_extender_answers_total{outcome="failed",reason="malformed",verb="filter"} 1.0',
        'coterie_extender_request_duration_seconds_count{verb="filter"} 3.0',
        'coterie_extender_devices{state="bound"} 4.0',
        'coterie_extender_devices{state="free"} 20.0',
        "coterie_extender_pods_with_devices 1.0",
        "coterie_extender_snapshot_nodes 3.0",
        f'{bandwidth}_count{{machine="dgx-1-v100",size="4"}} 1.0',
        f'{bandwidth}_bucket{{le="2e+10",machine="dgx-1-v100",size="4"}} 0.0',
        'coterie_extender_answers_total{outcome="failed",reason="stale",verb="bind"} 0.0',
        'coterie_extender_answers_total{outcome="failed",reason="stale",verb="preempt"} 0.0',
        'coterie_extender_answers_total{outcome="refused",reason="nic_taken",verb="filter"} 0.0',
        'coterie_extender_devices{state="held_unhealthy"} 0.0',
        'coterie_extender_unschedulable_pods{reason="too_few_gpus"} 1.0',
    ):
        assert line in text.splitlines()
    assert "u1" not in text


def test_decisions_are_logged_with_stable_keys(served):
    """One line per decision; empty fields are left out."""
    served.post("filter", args(pod(2, policy="required"), NODES))
    (line,) = served.log.lines
    assert line == {
        "event": "answered",
        "verb": "filter",
        "outcome": "ok",
        "pod": "default/pod-u1",
        "pod_uid": "u1",
        "n_nodes": 3,
        "n_named": 3,
        "warnings": line["warnings"],
        "generation": served.engine.cluster.snapshot.generation,
        "ms": 1.0,
    }


def test_a_log_that_takes_no_decisions_gets_none():
    """They are counted all the same."""
    served = Served(engine(), logs_answers=False)
    served.post("filter", args(pod(2), NODES))
    assert served.log.lines == []
    assert 'verb="filter"} 1.0' in served.call("GET", "/metrics").text


def test_what_is_recorded_replays():
    """What decides goes to the decision log; explanations and questions do not."""
    file = io.StringIO()
    served = Served(make_engine(RULES), file)
    see_cluster(served.gateway, spec())
    served.post("filter", args(pod(2), NODES))
    served.post("explain", json.dumps(pod(2)).encode())
    served.post("bind", binding("u1", "8x-l4-0"))
    lines = file.getvalue().splitlines()
    names = [json.loads(line)["name"] for line in lines[-3:]]
    assert names == ["VerbCalled", "BindRequested", "BindingWritten"]
    assert replay(lines).difference is None


def test_a_closed_connection_does_not_affect_other_calls(served):
    """The scheduler gives up after httpTimeout; the next call must be answered."""

    async def hang_up() -> list[dict[str, Any]]:
        sent: list[dict[str, Any]] = []
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "path": "/filter",
            "raw_path": b"/filter",
            "query_string": b"",
            "headers": [],
            "root_path": "",
        }

        async def receive() -> dict[str, Any]:
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        await served.app(scope, receive, send)
        return sent

    assert asyncio.run(hang_up()) == []
    assert served.log.lines == []
    assert served.post("filter", args(pod(1), NODES)).status_code == 200


class FullDisk(io.StringIO):
    """Takes so many writes."""

    n_left = 99

    def write(self, text: str) -> int:
        """Take a line, or fail as a full disk does."""
        if self.n_left == 0:
            raise OSError(28, "No space left on device")
        self.n_left -= 1
        return super().write(text)


def test_a_full_disk_ends_the_decision_log_and_nothing_else():
    """Pods are placed all the same; what was written replays."""
    file = FullDisk()
    served = Served(make_engine(RULES), file)
    see_cluster(served.gateway, spec())
    file.n_left = 1
    for uid in ("u1", "u2", "u3"):
        response = served.post("filter", args(pod(2, uid=uid), NODES))
        assert response.json()["NodeNames"] == NODES
    (ended,) = served.ended
    assert "no space left on device" in str(ended)
    assert replay(file.getvalue().splitlines()).n_calls == 1
