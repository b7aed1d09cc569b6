"""The demo's jobs of several pods: who starts when, and jobs that come and go."""

from __future__ import annotations

import pytest

from benchmarks.demo.jobs import (
    MOST_PAUSES,
    Job,
    Queue,
    by_leaf,
    in_turn,
    lay_out_pool,
    play_jobs,
    say_jobs,
    serving_pods,
    write_cluster,
)
from benchmarks.demo.policies import MostAllocatedPolicy
from benchmarks.demo.serve import GAP_MINUTES, JOB_MINUTES, JobTraffic
from benchmarks.rivals import NVIDIA_BEST_EFFORT
from extender.embedded import lay_out, read_cluster

POOL = lay_out_pool()


def one_by_one():
    """kube-scheduler without Coterie."""
    return MostAllocatedPolicy("one by one", NVIDIA_BEST_EFFORT, POOL, seed=0)


def test_the_extender_gets_fleet_and_pool_in_one_file(tmp_path):
    """The pool's nodes come last, so that those of the fleet keep their zones and devices."""
    nodes = lay_out(read_cluster(write_cluster(tmp_path, fleet="1x 4x-l40s")))
    assert [node.name for node in nodes][:3] == ["4x-l40s-0", "h100-a-0", "h100-a-1"]
    assert {node.name: node.ids for node in nodes[1:]} == {
        name: node.ids for name, node in POOL.items()
    }
    assert [len(found) for found in by_leaf(POOL).values()] == [4, 4, 4]
    assert {node.labels["cloud.google.com/gke-nodepool"] for node in nodes[:1]} == {"general"}


def test_pods_of_jobs_carry_their_group_and_come_in_turn():
    """As a user writes it; a job with more pods goes on alone."""
    pods = in_turn([Job("one", 2, 4), Job("two", 3, 8)])
    assert [pod.name for pod in pods] == ["one-0", "two-0", "one-1", "two-1", "two-2"]
    assert pods[1].as_json()["metadata"]["annotations"] == {
        "coterie.gpu/group": "two",
        "coterie.gpu/group-size": "3",
    }
    assert pods[1].selector == {"cloud.google.com/gke-nodepool": "training"}


def test_one_by_one_two_jobs_hold_what_the_other_needs():
    """Both large jobs are stuck with four of six nodes, whatever else ends."""
    run = play_jobs(one_by_one(), POOL)
    assert [(one.job.name, one.starts, one.n_at_once) for one in run.outcomes] == [
        ("tune", 0, 4),
        ("train-a", None, 4),
        ("train-b", None, 4),
    ]
    tune, train, _ = run.outcomes
    assert (run.n_held, train.value, train.pods) == (64, None, "4 of 6, never starts")
    assert (len(tune.nodes), len(tune.leaves)) == (4, 3)
    assert tune.value is not None
    assert tune.value.gbytes_per_s == pytest.approx(191.2, abs=0.1)
    assert tune.value.least_gbytes_per_s == pytest.approx(0.72 * 191.2, abs=0.1)
    assert "1 at once, and 2 block each other for ever on 64 idle GPUs." in say_jobs(run, run)


def test_a_queue_gives_up_where_nothing_helps():
    """A job that never fits is tried as long as Coterie may take to plan it again, not longer."""
    pauses: list[float] = []
    queue = Queue(one_by_one(), pauses.append)
    queue.arrive([*serving_pods(POOL), *Job("huge", 13, 8).pods])
    assert len(queue.waiting) == 4
    queue.end([pod for pod, _ in queue.placed.values() if pod.group is None])
    assert queue.is_whole(Job("huge", 12, 8))
    assert len(queue.waiting) == 1
    assert len(pauses) == 0
    queue.settle()
    assert len(pauses) == MOST_PAUSES
    queue.give_up()
    assert queue.waiting == []


def test_jobs_come_and_go_while_somebody_looks():
    """Each job has its turn, and the next of its kind comes some minutes after it has ended."""
    traffic = JobTraffic(one_by_one(), POOL, minute=0)
    assert [job.name for job in traffic.running] == ["tune-1"]
    assert [job.name for job in traffic.waiting] == ["train-2", "train-3"]
    traffic.advance(JOB_MINUTES)
    assert "tune-1" not in [job.name for job in traffic.running]
    traffic.advance(JOB_MINUTES + GAP_MINUTES)
    assert "tune-4" in [job.name for job in (*traffic.running, *traffic.waiting)]
