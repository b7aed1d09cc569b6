"""The speed benchmark's own parts: requests and the cluster under test."""

from __future__ import annotations

import pytest

from benchmarks.errors import ServerFailed
from benchmarks.speed.calls import Filler, lay_out
from benchmarks.speed.load import MACHINES, QUICK, percentiles
from benchmarks.speed.wire_client import PODS, binding, filter_args, free_port, pod, serve
from extender.protocol import messages, parse_pod
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


def test_the_cluster_can_hold_the_pods():
    """Partly taken and full nodes together have room; all machines have eight GPUs."""
    cluster = lay_out(QUICK)
    assert len(cluster.requested) == QUICK.n_names[0]
    assert not set(cluster.requested) & set(cluster.full)
    assert 8 * len(cluster.full) + 4 * len(cluster.requested[::2]) >= QUICK.n_pods
    assert {load_recording(name).n_gpus for name in MACHINES} == {8}
    assert all(name in cluster.spec for name in MACHINES)


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
    """Eight pods are created, filtered and bound; one to seven end again."""
    connection = FakeConnection()
    filler = Filler(connection, rng)
    filler.fill_partly("node")
    n_ended = sum(method == "DELETE" for method, _ in connection.paths)
    assert connection.paths[:3] == [("POST", path) for path in (PODS, "/filter", "/bind")]
    assert len(connection.paths) == 24 + n_ended
    assert filler.n_pods == 8 - n_ended
    assert 1 <= filler.n_pods <= 7


def test_percentiles_are_in_milliseconds():
    """Median, 99th percentile and maximum of seconds."""
    p50, p99, most = percentiles([i / 1000 for i in range(1, 102)])
    assert (p50, p99, most) == pytest.approx((51.0, 100.0, 101.0))


def test_a_server_that_ends_early_is_reported():
    """The message names the module and its status."""
    with (
        pytest.raises(ServerFailed, match=r"benchmarks\.no_such_module ended with status 1"),
        serve("benchmarks.no_such_module", [], free_port()),
    ):
        pass
