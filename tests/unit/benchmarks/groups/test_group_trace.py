"""The recorded network and jobs: what is read, and how members are made of it."""

from __future__ import annotations

import pytest

from benchmarks.errors import BadData, MissingData
from benchmarks.groups.hosts import Hosts
from benchmarks.groups.trace import TraceJob, jobs_of, load_hosts, load_jobs

HOSTS = "ip,DSW,PSW,ASW\na,G6,P1,S1\nb,G6,P2,S1\n"
JOBS = "job_id,num_gpu,submit_time,duration\n0,16,2000,7000\n1,1,0,0\n"


def test_hosts_have_their_three_switches(tmp_path):
    """ASW is the leaf, PSW the spine, DSW the core; some spines may be chosen."""
    path = tmp_path / "topo.csv"
    path.write_text(HOSTS)
    hosts = load_hosts(path)
    assert [(s.level, s.value) for s in hosts["a"].steps] == [
        ("leaf", "S1"),
        ("spine", "P1"),
        ("core", "G6"),
    ]
    assert list(load_hosts(path, ["P2"])) == ["b"]


def test_jobs_are_in_seconds(tmp_path):
    """A job of no duration would end before it starts, so it takes one second."""
    path = tmp_path / "jobs.csv"
    path.write_text(JOBS)
    assert load_jobs(path) == (TraceJob(2.0, 16, 7.0), TraceJob(0.0, 1, 1.0))


@pytest.mark.parametrize(
    ("load", "text", "message"),
    [
        pytest.param(load_hosts, "ip,PSW\na,P1\n", r"columns \['ASW', 'DSW'\]", id="no columns"),
        pytest.param(load_hosts, "ip,DSW,PSW,ASW\n", "no host of any spine", id="no hosts"),
        pytest.param(
            load_jobs, "num_gpu,submit_time,duration\n1,soon,2\n", "'soon'", id="no number"
        ),
    ],
)
def test_refuses_what_is_no_recording(tmp_path, load, text, message):
    """The message names the file and what is wrong."""
    path = tmp_path / "data.csv"
    path.write_text(text)
    with pytest.raises(BadData, match=message):
        load(path)


def test_a_missing_file_is_reported_with_the_option(tmp_path):
    """The data is others' and not part of the project."""
    with pytest.raises(MissingData, match="--shared"):
        load_jobs(tmp_path / "jobs.csv")


def test_jobs_of_more_gpus_than_a_member_are_groups():
    """Arrivals are divided, jobs are in their order; a single pod has the job's own size."""
    traces = {"one": [TraceJob(40.0, 16, 5.0), TraceJob(20.0, 2, 6.0)], "two": [TraceJob(0, 8, 7)]}
    jobs = jobs_of(traces, speed_up=2.0, n_gpus=8, seed=0)
    assert [(j.arrival_s, j.n_members, j.n_gpus, j.duration_s) for j in jobs] == [
        (0.0, 1, 8, 7),
        (10.0, 1, 2, 6.0),
        (20.0, 2, 8, 5.0),
    ]
    assert [j.n_members for j in jobs_of(traces, speed_up=2.0, n_gpus=4, seed=0)] == [2, 1, 4]


def test_a_seed_changes_the_order_and_not_the_jobs():
    """By up to an hour; the same seed gives the same order."""
    traces = {"one": [TraceJob(600.0 * i, 1 + i % 3, float(i)) for i in range(50)]}
    plain, first, again = (jobs_of(traces, speed_up=1, n_gpus=8, seed=s) for s in (0, 1, 1))
    assert first == again
    assert [j.duration_s for j in first] != [j.duration_s for j in plain]
    assert sorted(j.duration_s for j in first) == sorted(j.duration_s for j in plain)
    assert all(abs(j.arrival_s - 600 * j.duration_s) <= 3600 for j in first)


def test_no_gpu_is_taken_twice_or_given_twice(paths):
    """A policy that places more than is free is a fault of the policy, and stops the run."""
    hosts = Hosts(paths, 0)
    hosts.take([(0, 2)], 4)
    with pytest.raises(ValueError, match=r"host 0 has -1 GPUs free, expected 0\.\.8"):
        hosts.take([(0, 1)], 1)
    hosts.give([(0, 2)], 4)
    with pytest.raises(ValueError, match="host 0 has 12 GPUs free"):
        hosts.give([(0, 1)], 4)
