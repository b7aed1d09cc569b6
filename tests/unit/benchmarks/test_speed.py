"""The speed benchmark's own parts: requests, the cluster under test, the echo and the torus."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import httpx
import pytest

from benchmarks.errors import ServerFailed
from benchmarks.speed.cluster import Filler, lay_out_cluster
from benchmarks.speed.core import torus
from benchmarks.speed.echo_server import create_echo
from benchmarks.speed.http import N_SHAPES, CallTimes, draw_pods, table_rows, time_parts
from benchmarks.speed.large import Draw, drawn_machine, measure_large
from benchmarks.speed.load import MACHINES, QUICK, percentiles
from benchmarks.speed.wire_client import binding, filter_args, free_port, pod, serve
from extender.protocol import messages, parse_pod
from topology.annotations import Affinity
from topology.recordings import load_recording


def test_requests_are_what_the_extender_reads():
    """A filter request and a binding decode into the extender's own wire models."""
    body = filter_args(pod("u1", 4, {"coterie.gpu/affinity": "nvlink"}), '["a","b"]')
    args = messages.decode(messages.ExtenderArgs, body)
    assert args.node_names == ["a", "b"]
    request = parse_pod(args.pod, ["nvidia.com/gpu"])
    assert (request.uid, request.size_gpus) == ("u1", 4)
    bound = messages.decode(messages.BindingArgs, binding("u1", "a"))
    assert (bound.pod_uid, bound.node) == ("u1", "a")
    assert request.full_name == f"{bound.pod_namespace}/{bound.pod_name}"


def test_requests_repeat():
    """The same seed makes the same calls, another one others."""
    assert draw_pods(9, 1) == draw_pods(9, 1)
    assert draw_pods(9, 1) != draw_pods(9, 2)


def test_requests_name_every_shape():
    """Five sizes by five affinities, each pod one of them."""
    shapes = {
        json.dumps((one["metadata"]["annotations"], one["spec"]), sort_keys=True)
        for one in draw_pods(1000, 1)
    }
    assert len(shapes) == N_SHAPES == 25


def test_slow_first_calls_are_in_the_row_over_all_calls():
    """One slow first call in ten is the maximum of all calls, and stands alone below."""
    found = {
        title: cells
        for title, *cells in table_rows(5, {"filter": CallTimes([0.02], [0.001] * 9)}, 0.5)
    }
    assert found["filter, 5 names, all calls"][0] == 10
    assert found["filter, 5 names, all calls"][3] == pytest.approx(20.0)
    assert found["filter, 5 names, first of its shape"] == pytest.approx([1, 20, 20, 20, 40])
    assert found["filter, 5 names, shape known"] == pytest.approx([9, 1, 1, 1, 2])
    assert len(table_rows(5, {"filter": CallTimes([0.02])}, 0.5)) == 2


def test_the_cluster_can_hold_the_pods():
    """Partly taken and full nodes together have room; all machines have eight GPUs."""
    cluster = lay_out_cluster(QUICK)
    assert len(cluster.requested) == QUICK.n_names[0]
    assert not set(cluster.requested) & set(cluster.full)
    assert 8 * len(cluster.full) + 4 * len(cluster.requested[::2]) >= QUICK.n_pods
    assert {load_recording(name).n_gpus for name in MACHINES} == {8}
    assert all(name in cluster.spec for name in MACHINES)
    wide = lay_out_cluster(replace(QUICK, n_pods=10 * QUICK.n_pods))
    assert len(wide.full) > len(cluster.full)


class FakeConnection:
    """Counts requests, answers nothing."""

    def __init__(self):
        self.paths = []

    def send(self, path, body, *, method="POST"):
        """Remember the path."""
        del body
        self.paths.append((method, path))
        return b"", 0.0


def test_a_partly_taken_node_keeps_one_to_seven_pods(rng):
    """Eight pods are bound, each after its filter; one to seven end again."""
    connection = FakeConnection()
    filler = Filler(connection, rng)
    filler.fill_partly("node")
    n_ended = sum(method == "DELETE" for method, _ in connection.paths)
    assert connection.paths[:2] == [("POST", "/filter"), ("POST", "/bind")]
    assert len(connection.paths) == 16 + n_ended
    assert filler.n_pods == 8 - n_ended
    assert 1 <= filler.n_pods <= 7


def test_percentiles_are_in_milliseconds():
    """Median, 99th percentile and maximum of seconds."""
    p50, p99, most = percentiles([i / 1000 for i in range(1, 102)])
    assert (p50, p99, most) == pytest.approx((51.0, 100.0, 101.0))


def test_every_gpu_of_a_torus_has_four_neighbours():
    """4 x 4: 16 GPUs, two links to each of four neighbours."""
    topology = torus(4, 2)
    assert topology.n_gpus == 16
    assert {sum(link.n_links or 0 for link in row) for row in topology.links} == {8}


def test_the_echo_answers_with_the_body():
    """What goes in comes out, with 200."""
    body = json.dumps({"NodeNames": ["a"]}).encode()

    async def send():
        transport = httpx.ASGITransport(create_echo())
        async with httpx.AsyncClient(transport=transport, base_url="http://echo") as client:
            return await client.post("/echo", content=body), await client.get("/livez")

    echoed, live = asyncio.run(send())
    assert echoed.content == body
    assert (echoed.status_code, live.status_code) == (200, 200)


def test_a_server_that_ends_early_is_reported():
    """The message names the module and its status."""
    with (
        pytest.raises(ServerFailed, match=r"benchmarks\.no_such_module ended with status 1"),
        serve("benchmarks.no_such_module", [], free_port()),
    ):
        pass


def test_time_is_split_into_parts():
    """Two calls of 5 ms, 3 of them in the answer: 2 ms of HTTP; the rest is the answer's own."""
    measured = {"filter": CallTimes([0.005], [0.005])}
    ((verb, n, total, http, decoding, rest),) = time_parts(
        measured, {"filter": (1.0, 4)}, {"filter": (1.006, 6)}, filter_args(pod("u", 1), '["a"]')
    )
    assert (verb, n) == ("filter", 2)
    assert (total, http) == pytest.approx((5.0, 2.0))
    assert isinstance(decoding, float)
    assert rest == pytest.approx(3.0 - decoding)


def test_the_slowest_rating_is_searched_for():
    """Machines repeat for a draw; the table names the slowest."""
    draw = Draw(20, 0.5, 4, 2, 3, Affinity.NUMA, n_containers=2, seed=1)
    assert drawn_machine(draw) == drawn_machine(draw) != drawn_machine(replace(draw, seed=2))
    table = measure_large(QUICK, 0)
    assert [row[1] for row in table.rows] == [QUICK.n_builds] * 3 + [QUICK.n_draws]
    assert all(isinstance(row[4], float) and row[4] > 0 for row in table.rows)
    assert "slowest:" in table.notes[2]
