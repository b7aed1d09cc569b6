"""Numbers, sentences and bars."""

from __future__ import annotations

import pytest

from kubectl_coterie.text import capacity_headline, gpu_set, limit, sparkline
from kubectl_coterie.text.words import joined, offer
from topology.value import Limit


def cluster(**changed):
    """Sums of a cluster."""
    sums = {"gpus": 272, "gpus_free": 39, "gpus_stranded": 11, "gpus_unhealthy": 0}
    return sums | {"gpus_unavailable": 0, "pods_pending": 3} | changed


@pytest.mark.parametrize(
    ("sums", "sentence"),
    [
        (cluster(), "272 GPUs, 39 free, 11 of them can form no set of four, 3 pods wait"),
        (
            cluster(gpus_stranded=0, gpus_unhealthy=2, pods_pending=1),
            "272 GPUs, 39 free, 2 unhealthy, 1 pod waits",
        ),
        (
            cluster(gpus_stranded=0, gpus_unavailable=1008),
            "272 GPUs, 39 free, 1,008 more free on nodes that take no new pod, 3 pods wait",
        ),
        (cluster(gpus=1, gpus_free=0, pods_pending=0), "1 GPU, 0 free, no pods wait"),
        (
            cluster(gpus=40000, gpus_free=1200, gpus_stranded=1000, pods_pending=5000),
            "40,000 GPUs, 1,200 free, 1,000 of them can form no set of four, 5,000 pods wait",
        ),
    ],
)
def test_the_state_of_the_cluster(sums, sentence):
    """As the page begins."""
    assert capacity_headline(sums) == sentence


@pytest.mark.parametrize("one", Limit)
def test_every_limit_has_words(one):
    """A later one stays as it is."""
    assert limit(one.name.lower()) != one.name.lower() or one is Limit.NOTHING
    assert limit("later\n") == "later?"
    assert limit(None) == ""


def test_no_bars_without_gpus():
    """Nothing is divided by zero, and no value is above the top."""
    assert sparkline([0, None], top=0) == "▁ "
    assert sparkline([9], top=8) == "█"


def test_devices_that_go_by_count():
    """An empty set is a set."""
    assert gpu_set([]) == "{}"


def container(*gpus, value=None):
    """What a container gets."""
    return {"gpus": list(gpus), "gbytes_per_s": value, "limited_by": None}


@pytest.mark.parametrize(
    ("containers", "text"),
    [
        ([container(1), container(0)], "{0,1}"),
        ([container(0, 1), container(2)], "{0,1,2}, GB/s unknown"),
        ([container(0, 1, value=40.0), container(2)], "{0,1,2}, 40 GB/s"),
    ],
)
def test_one_gpu_in_each_container_has_no_rate(containers, text):
    """Nothing is reduced between containers, so that none is unknown either."""
    assert offer(joined(containers)) == text
