"""The queue loop: blocking head, upstream's skipping, and files that are no queue."""

from __future__ import annotations

import pytest

from benchmarks.errors import BadData, MissingData
from benchmarks.quality.queues import Job, QueueOrder, load_queue, simulate
from topology.model import gpus_of, mask_of


def lowest(free, size, is_sensitive):
    """Take the lowest free ids."""
    del is_sensitive
    return mask_of(gpus_of(free)[:size])


def test_the_head_of_the_queue_blocks_the_rest():
    """A job that would fit waits behind one that does not."""
    jobs = (
        Job(3, 5, is_sensitive=True),
        Job(2, 1, is_sensitive=True),
        Job(1, 1, is_sensitive=False),
    )
    replayed = simulate(jobs, 4, lowest)
    assert [p.gpus for p in replayed.placements] == [0b0111, 0b0011, 0b0100]
    assert replayed.makespan == 6


def test_upstream_order_skips_the_next_job_of_a_cycle():
    """MAPA's simulator erases while it walks: the third job is looked at before the second."""
    jobs = tuple(Job(1, duration, is_sensitive=False) for duration in (10, 20, 30))
    replayed = simulate(jobs, 2, lowest, QueueOrder.UPSTREAM)
    assert [p.job.duration for p in replayed.placements] == [10, 30, 20]


def test_a_refused_job_waits_for_the_next_end():
    """A refusal blocks until a job ends."""

    def choose(free, size, is_sensitive):
        return None if is_sensitive and free != 0b11 else lowest(free, size, is_sensitive)

    jobs = (Job(1, 4, is_sensitive=False), Job(1, 1, is_sensitive=True))
    assert simulate(jobs, 2, choose).makespan == 5


def test_a_job_refused_on_an_idle_node_is_an_error():
    """Otherwise the loop would never end."""
    with pytest.raises(BadData, match="job of 3 GPUs is refused on an idle node of 2"):
        simulate((Job(3, 1, is_sensitive=True),), 2, lowest)


def test_reads_a_queue(tmp_path):
    """Size, duration and sensitivity; the arrival is ignored."""
    path = tmp_path / "jobs.txt"
    path.write_text("5,ring,1,16,1,alexnet.sh\n2,ring,58,7,0,googlenet.sh\n")
    assert load_queue(path) == (Job(5, 16, is_sensitive=True), Job(2, 7, is_sensitive=False))


def test_refuses_what_is_no_queue(tmp_path):
    """The message names file, line and expectation."""
    path = tmp_path / "jobs.txt"
    path.write_text("5,ring,1,16,1,alexnet.sh\nfive,ring,1,16,1,x\n")
    with pytest.raises(BadData, match=r"jobs\.txt:2: 'five,ring"):
        load_queue(path)
    with pytest.raises(MissingData, match="--shared"):
        load_queue(tmp_path / "none.txt")
