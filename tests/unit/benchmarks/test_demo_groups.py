"""The demo's jobs of several pods: who starts when, on which nodes, and what is shown of it."""

from __future__ import annotations

import dataclasses
import io

import httpx
import pytest
from rich.console import Console

from benchmarks.demo.groups.comparison import compare_jobs
from benchmarks.demo.groups.jobs import JOBS, Job, in_turn, serving_pods
from benchmarks.demo.groups.outcome import say_jobs
from benchmarks.demo.groups.pool import by_leaf, lay_out_pool, leaf_of, write_cluster
from benchmarks.demo.groups.queue import MOST_PAUSES, Queue
from benchmarks.demo.groups.section import count_job_drawings, make_section
from benchmarks.demo.groups.table import job_table
from benchmarks.demo.groups.traffic import DURATION_MINUTES, GAP_MINUTES, JobTraffic
from benchmarks.demo.kube_scheduler import HttpExtender
from benchmarks.demo.policies import ExtenderPolicy
from extender.config import load_settings
from extender.embedded import lay_out, make_engine, read_cluster
from extender.protocol import Outcome, Verb

POOL = lay_out_pool()


class EmbeddedCluster:
    """The extender's engine behind a policy of the demo; the clock moves in pauses only."""

    def __init__(self, folder):
        settings = load_settings({"cluster": str(write_cluster(folder, fleet="1x 4x-l40s"))})
        self.engine = make_engine(settings.cluster_spec(), settings.rules)
        self.now_s = 0.0
        client = httpx.Client(
            transport=httpx.MockTransport(self._handle), base_url="http://extender"
        )
        self.policy = ExtenderPolicy(POOL, HttpExtender(client), seed=0)

    def pause(self, seconds):
        """Let time pass."""
        self.now_s += seconds

    def _handle(self, request):
        verb, uid = request.url.path.removeprefix("/"), request.url.path.rpartition("/")[2]
        if request.method == "POST":
            answer = self.engine.answer(Verb(verb), request.content, self.now_s)
        elif request.method == "DELETE":
            answer = self.engine.answer(Verb.END, uid.encode(), self.now_s)
        else:
            bound = self.engine.cluster.bound(uid)
            assert bound is not None
            return httpx.Response(200, json=bound.as_json())
        return httpx.Response(400 if answer.outcome is Outcome.FAILED else 200, content=answer.body)


@pytest.fixture
def cluster(tmp_path):
    """A cluster of the pool and another node."""
    return EmbeddedCluster(tmp_path)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The comparison as `make demo` shows it, with the same seed."""
    cluster = EmbeddedCluster(tmp_path_factory.mktemp("jobs"))
    found = compare_jobs(cluster.policy, POOL, seed=0, pause=cluster.pause)
    assert cluster.engine.cluster.n_pods == 0
    return found


def outcomes(run):
    """Each job's outcome by its name."""
    return {one.job.name: one for one in run.outcomes}


def test_the_extender_gets_fleet_and_pool_in_one_file(tmp_path):
    """The pool's nodes come last, so that those of the fleet keep their zones and devices."""
    nodes = lay_out(read_cluster(write_cluster(tmp_path, fleet="1x 4x-l40s")))
    assert [node.name for node in nodes][:3] == ["4x-l40s-0", "h100-a-0", "h100-a-1"]
    of_pool = {node.name: node.ids for node in nodes[1:]}
    assert of_pool == {name: node.ids for name, node in POOL.items()}
    assert [len(found) for found in by_leaf(POOL).values()] == [4, 4, 4]
    assert {node.labels["example.com/pool"] for node in nodes[:1]} == {"general"}
    assert {node.labels["example.com/pool"] for node in nodes[1:]} == {"training"}


def test_pods_of_jobs_carry_their_group_and_come_in_turn():
    """As a user writes it; a job with more pods goes on alone."""
    pods = in_turn([Job("one", 2, 4), Job("two", 3, 8)])
    assert [pod.name for pod in pods] == ["one-0", "two-0", "one-1", "two-1", "two-2"]
    assert pods[1].as_json()["metadata"]["annotations"] == {
        "coterie.gpu/group": "two",
        "coterie.gpu/group-size": "3",
    }
    assert pods[1].selector == {"example.com/pool": "training"}
    assert in_turn([]) == ()


def test_with_coterie_a_job_has_all_its_pods_or_none(demo):
    """In every state; the second large job gets its nodes when the first has ended."""
    for state in demo.ours.states:
        assert {len(state.places(job)) for job in JOBS} <= {0, 4, 6}
        assert all(state.is_whole(job) or not state.places(job) for job in JOBS)
    found = outcomes(demo.ours)
    assert {name: (one.starts, one.n_at_once) for name, one in found.items()} == {
        "tune": (0, 4),
        "train-a": (0, 6),
        "train-b": (1, 0),
    }
    assert demo.ours.n_held == 0


def test_one_by_one_two_jobs_hold_what_the_other_needs(demo):
    """Both large jobs are stuck with four of six nodes, whatever else ends."""
    found = outcomes(demo.theirs)
    assert {name: (one.starts, one.n_at_once) for name, one in found.items()} == {
        "tune": (0, 4),
        "train-a": (None, 4),
        "train-b": (None, 4),
    }
    assert (demo.theirs.n_held, found["train-a"].value) == (64, None)


def test_where_pods_do_not_come_in_turn_both_jobs_run_one_by_one(demo):
    """Said beside the comparison, which would show more than is true else."""
    found = outcomes(demo.in_order)
    assert [one.starts for one in demo.in_order.outcomes] == [0, 0, 1]
    assert found["train-b"].n_at_once == 2
    section = make_section(demo, lambda: None)
    assert "train-b then holds 16 GPUs while it waits" in section.in_order
    same = make_section(dataclasses.replace(demo, in_order=demo.theirs), lambda: None)
    assert same.in_order == ""


def test_a_group_is_near_with_even_shares_and_faster(demo):
    """Four pods of 4 GPUs: two nodes of one leaf instead of four nodes of three leaves."""
    ours, theirs = outcomes(demo.ours)["tune"], outcomes(demo.theirs)["tune"]
    assert (len(ours.nodes), len(ours.leaves)) == (2, 1)
    assert (len(theirs.nodes), len(theirs.leaves)) == (4, 3)
    assert {leaf_of(POOL[name]) for name in ours.nodes} == set(ours.leaves)
    assert round(ours.value.gbytes_per_s) == 469
    assert round(theirs.value.gbytes_per_s) == 191
    assert theirs.value.least_gbytes_per_s == pytest.approx(0.72 * 191.2)


def test_the_sentence_says_what_each_gains(demo):
    """Also what starts never, and what it holds meanwhile."""
    assert say_jobs(demo.theirs, demo.ours) == (
        "Of 3 jobs of several pods Coterie starts 2 at once, 1 when these have ended; placed one "
        "by one, they start 1 at once, 2 never, which hold 64 GPUs. tune: 469 GB/s on 2 nodes "
        "under 1 leaf switch with Coterie, 191 GB/s on 4 nodes under 3 leaf switches without."
    )


def test_the_table_fits_80_columns(demo):
    """Every word of a wide row is there, and no ellipsis."""
    text = io.StringIO()
    Console(file=text, width=80).print(job_table(demo))
    assert "\u2026" not in text.getvalue()
    for words in ("4 of 6, never starts", "0 of 6, later 6", "469 (338)", "28 % too high", "  -"):
        assert words in text.getvalue()


def test_the_section_draws_the_pool_before_and_after(demo):
    """A picture for each policy and one of what follows; held GPUs are outlined."""
    steps = []
    section = make_section(demo, lambda: steps.append(1))
    assert len(steps) == count_job_drawings(demo) == len(section.pictures) == 3
    theirs, ours, later = section.pictures
    assert "train-a holds 32 GPUs and cannot start" in theirs.caption
    assert ours.caption == "runs: tune, train-a; train-b waits and holds none"
    assert later.caption == "runs: train-b"
    for picture in section.pictures:
        assert picture.svg.startswith("<svg")
        assert "clip-path" not in picture.svg
        assert all(name in picture.svg for name in POOL)
    colour = {text.partition(",")[0]: colour for colour, text in section.legend}["train-a"]
    assert f"fill: {colour.lower()}" not in theirs.svg
    assert f"stroke: {colour.lower()}" in theirs.svg
    assert f"fill: {colour.lower()}" in ours.svg
    alone = dataclasses.replace(demo, ours=demo.theirs)
    assert len(make_section(alone, lambda: None).pictures) == count_job_drawings(alone) == 2


def test_a_queue_gives_up_where_nothing_helps(cluster):
    """A job that never fits is tried as long as Coterie may take to plan it again, not longer."""
    pauses: list[float] = []
    queue = Queue(cluster.policy, pauses.append)
    queue.arrive([*serving_pods(POOL), *Job("huge", 13, 8).pods])
    queue.end(pod for pod, _ in tuple(queue.placed.values()))
    assert len(pauses) == MOST_PAUSES
    assert len(queue.waiting) == 13
    queue.clear()
    assert queue.waiting == []


def test_jobs_come_and_go_while_somebody_looks(cluster):
    """Two run and one waits whole; each job has its turn, and the next of its kind comes."""
    traffic = JobTraffic(cluster.policy, POOL, minute=0)
    assert [job.name for job in traffic.running] == ["tune-1", "train-2"]
    assert [job.name for job in traffic.waiting] == ["train-3"]
    seen = dict.fromkeys(traffic.running)
    for minute in range(1, 2 * DURATION_MINUTES + GAP_MINUTES):
        cluster.pause(1.0)
        traffic.advance(minute)
        seen |= dict.fromkeys(traffic.running)
        assert sum(job.n_gpus == 8 for job in traffic.running) <= 1
    assert [job.name for job in seen] == ["tune-1", "train-2", "train-3", "tune-4", "train-5"]
