"""Playing jobs: nothing is used twice, nothing is lost, and groups start whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.groups.benchmark import WAYS
from benchmarks.groups.hosts import Hosts
from benchmarks.groups.policies import Coterie, Gang, least_allocated, most_allocated
from benchmarks.groups.simulation import AllOrNone, OneByOne, play
from benchmarks.groups.trace import Job
from topology.groups import DomainPath, DomainStep

HOUR_S = 3600.0


def starts(run):
    """When each job started, in the order of arrival and size."""
    ordered = sorted(run.started, key=lambda one: (one.job.arrival_s, -one.job.n_members))
    return [one.started_s for one in ordered]


def test_what_does_not_fit_waits_and_what_comes_later_may_start(hosts_of):
    """Backfill: the group of nine waits for the first one, a single pod does not."""
    jobs = [Job(0, 5, 8, 100), Job(10, 9, 8, 50), Job(20, 1, 8, 30)]
    run = play(hosts_of(), jobs, AllOrNone(Coterie()))
    assert starts(run) == [0, 100, 20]
    assert (run.ended_s, run.n_stuck, run.partial_gpu_s) == (150, 0, 0)


def test_one_by_one_holds_what_it_has(hosts_of):
    """Four hosts of the second group are idle for 90 seconds, and the single pod waits for it."""
    jobs = [Job(0, 5, 8, 100), Job(10, 9, 8, 50), Job(20, 1, 8, 30)]
    run = play(hosts_of(), jobs, OneByOne(least_allocated))
    assert starts(run) == [0, 100, 150]
    assert run.partial_gpu_s == 4 * 8 * 90


def test_small_pods_pass_a_size_that_waits(hosts_of):
    """Only members of one size wait for each other."""
    jobs = [Job(0, 9, 6, 100), Job(10, 1, 8, 50), Job(20, 1, 2, 30)]
    run = play(hosts_of(), jobs, OneByOne(most_allocated))
    assert starts(run) == [0, 100, 20]


def test_free_gpus_are_counted_until_the_last_arrival(hosts_of):
    """Afterwards the cluster only empties, whoever placed."""
    jobs = [Job(0, 1, 4, 10), Job(20, 1, 8, 10)]
    run = play(hosts_of(), jobs, AllOrNone(Gang(most_allocated)))
    assert run.free_gpu_s == 68 * 10 + 72 * 10
    assert run.scattered_gpu_s == 4 * 10


def test_a_job_that_never_fits_is_counted(hosts_of):
    """And is no reason to play on."""
    run = play(hosts_of(), [Job(0, 10, 8, 10)], AllOrNone(Coterie()))
    assert (run.n_stuck, run.started) == (1, [])


def test_patience_keeps_hosts_for_the_oldest_group(hosts_of):
    """Pods of one host come for ever; the group starts once the leaf that it keeps is empty."""
    jobs = [Job(0, 1, 8, 100 + i) for i in range(9)]
    jobs += [Job(1, 4, 8, 50)]
    jobs += [Job(2 + i, 1, 8, 100) for i in range(40)]
    patient = play(hosts_of(), jobs, AllOrNone(Coterie(), patience_s=60))
    plain = play(hosts_of(), jobs, AllOrNone(Coterie()))
    waits = [
        next(one.wait_s for one in run.started if one.job.n_members > 1) for run in (patient, plain)
    ]
    assert waits[0] < 110 < waits[1]
    group = next(one for one in patient.started if one.job.n_members > 1)
    assert len(group.shares) == 4


def test_a_group_that_keeps_hosts_may_start_elsewhere(hosts_of):
    """Where others end first; what it kept is free for others at once."""
    jobs = [Job(0, 1, 8, 300) for _ in range(5)] + [Job(0, 4, 8, 200)]
    jobs += [Job(1, 2, 8, 10), Job(100, 1, 1, 1), Job(201, 1, 8, 10)]
    run = play(hosts_of(), jobs, AllOrNone(Coterie(), patience_s=60))
    group = next(one for one in run.started if one.job.n_members == 2)
    assert group.started_s == 200
    single = next(one for one in run.started if one.job.arrival_s == 201)
    assert single.started_s == 201


PATHS = {
    f"{leaf}-{i}": DomainPath(
        tuple(
            DomainStep(level, "test", value)
            for level, value in (("leaf", leaf), ("spine", leaf[0]), ("core", "D"))
        )
    )
    for leaf in ("A1", "A2", "B1")
    for i in range(2)
}


@st.composite
def some_jobs(draw):
    """Jobs that each fit on six hosts, in the order of arrival."""
    n_jobs = draw(st.integers(1, 14))
    jobs = [
        Job(
            draw(st.integers(0, 20)) * HOUR_S,
            draw(st.integers(1, 6)),
            draw(st.sampled_from([1, 2, 4, 8])),
            draw(st.integers(1, 10)) * HOUR_S,
        )
        for _ in range(n_jobs)
    ]
    return sorted(jobs, key=lambda job: job.arrival_s)


@pytest.mark.parametrize("name", WAYS)
@given(jobs=some_jobs())
def test_nothing_is_used_twice_and_nothing_is_lost(name, jobs):
    """Whoever places: each job starts once, whole, after it came, and all GPUs come back."""
    hosts = Hosts(PATHS, 1)
    run = play(hosts, jobs, WAYS[name])
    assert len(run.started) + run.n_stuck == len(jobs)
    if isinstance(WAYS[name], AllOrNone):
        assert (run.n_stuck, run.partial_gpu_s) == (0, 0)
        assert (hosts.free == 8).all()
    for one in run.started:
        assert one.wait_s >= 0
        assert sum(n for _, n in one.shares) == one.job.n_members
    for moment in {one.started_s for one in run.started}:
        used = [0] * 6
        for one in run.started:
            if one.started_s <= moment < one.started_s + one.job.duration_s:
                for host, n_members in one.shares:
                    used[host] += n_members * one.job.n_gpus
        assert max(used) <= 8
