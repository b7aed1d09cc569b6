"""Playing jobs: nothing is used twice, nothing is lost, and groups start whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.errors import BadData, MissingData
from benchmarks.groups.benchmark import POLICIES, predicted_gbytes_per_s, rate, run
from benchmarks.groups.hosts import Hosts
from benchmarks.groups.policies import Coterie
from benchmarks.groups.simulation import Started, play
from benchmarks.groups.trace import Job, jobs_of, load_hosts, load_jobs
from topology.groups import DomainPath, DomainStep

HOUR_S = 3600.0


def test_what_does_not_fit_waits_and_what_comes_later_may_start(hosts_of):
    """Backfill: the group of nine waits for the first one, a single pod does not."""
    jobs = [Job(0, 5, 8, 100), Job(10, 9, 8, 50), Job(20, 1, 8, 30)]
    assert [one.started_s for one in play(hosts_of(), jobs, Coterie())] == [0, 20, 100]


def test_a_job_that_never_fits_does_not_start(hosts_of):
    """And is no reason to play on."""
    assert play(hosts_of(), [Job(0, 10, 8, 10)], Coterie()) == []


def test_a_run_is_rated_by_its_groups_and_waits(hosts_of):
    """One group in a leaf, one over two spines; the single pod waited twice as long."""
    started = [
        Started(Job(0, 2, 8, 10), 3600, ((0, 1), (1, 1))),
        Started(Job(0, 2, 8, 10), 3600, ((4, 1), (5, 1))),
        Started(Job(0, 1, 8, 10), 7200, ((2, 1),)),
    ]
    one_leaf, n_hosts, mean, harmonic, *waits = rate(started, hosts_of())
    assert (one_leaf, n_hosts) == (50.0, 2.0)
    assert mean == pytest.approx(harmonic) == pytest.approx(469, abs=1)
    assert waits == [1.0, 1.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        pytest.param((8,), 469, id="one host: its NVSwitch"),
        pytest.param((4, 4), 335, id="two hosts: the switches reduce, so the network counts more"),
        pytest.param((4, 4, 4), 191, id="three hosts: a NIC for each GPU of the least share"),
        pytest.param((1, 8), 85, id="the least share decides"),
    ],
)
def test_the_bandwidth_of_a_group(gpus, expected):
    """By the model of the core; a host is a DGX H100."""
    assert round(predicted_gbytes_per_s(gpus)) == expected


def test_members_are_made_of_recorded_jobs(tmp_path, paths):
    """A job of more GPUs than a member is a group; arrivals are divided, times are in seconds."""
    path = tmp_path / "jobs.csv"
    path.write_text("job_id,num_gpu,submit_time,duration\n0,16,20000,7000\n1,1,10000,0\n")
    trace = load_jobs(path)
    assert jobs_of(trace, speed_up=2.0, n_gpus=8, seed=0) == [Job(5, 1, 1, 1), Job(10, 2, 8, 7)]
    (table,) = run(paths, trace * 3, n_seeds=2)
    assert [row[:2] for row in table.rows] == [(name, n) for n in (8, 4) for name in POLICIES]


def test_hosts_have_their_three_switches(tmp_path, check_message):
    """ASW is the leaf, PSW the spine, DSW the core; of one spine only."""
    path = tmp_path / "topo.csv"
    path.write_text("ip,DSW,PSW,ASW\na,G6,P1,S1\nb,G6,P2,S1\n")
    hosts = load_hosts(path, "P1")
    assert [one.value for one in hosts["a"].steps] == ["S1", "P1", "G6"]
    assert list(hosts) == ["a"]
    with pytest.raises(BadData) as caught:
        load_hosts(path, "P9")
    check_message(caught.value)
    with pytest.raises(BadData, match="num_gpu"):
        load_jobs(path)
    with pytest.raises(MissingData, match="--shared"):
        load_jobs(tmp_path / "none.csv")


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


@pytest.mark.parametrize("name", POLICIES)
@given(jobs=some_jobs())
def test_nothing_is_used_twice_and_nothing_is_lost(name, jobs):
    """Whoever places: each job starts once, whole, after it came, and all GPUs come back."""
    hosts = Hosts(PATHS, 1)
    started = play(hosts, jobs, POLICIES[name])
    assert len(started) == len(jobs)
    assert (hosts.free == 8).all()
    for one in started:
        assert one.wait_s >= 0
        assert sum(n for _, n in one.shares) == one.job.n_members
    for moment in {one.started_s for one in started}:
        used = [0] * 6
        for one in started:
            if one.started_s <= moment < one.started_s + one.job.duration_s:
                for host, n_members in one.shares:
                    used[host] += n_members * one.job.n_gpus
        assert max(used) <= 8
