"""The audit's figures against an independent computation, on every recorded machine to 8 GPUs.

Nothing of the audit is used but its report: the lists are read here as plain JSON, all sets and all
placements are tried, and only the value of a set comes from the same tables.
"""

import json
from functools import cache
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import up_to
from tests.kubectl_lists import held_by, kube_list, node, pod
from topology.annotations import DevicesReport
from topology.audit import audit, read_cluster
from topology.recordings import load_recording, recording_names
from topology.select import build_tables

SMALL = [name for name in recording_names() if load_recording(name).n_gpus <= 8]


@cache
def values(name):
    """GB/s of every set, and of the best set of each size."""
    tables = build_tables(load_recording(name))
    return tables.value.tolist(), tables.best_value


def worth(name, gpus):
    """GB/s of a set."""
    return values(name)[0][sum(1 << gpu for gpu in gpus)]


def owners(node_json):
    """GPUs by pod, from the plugin's report as it stands in the annotation."""
    report = json.loads(node_json["metadata"]["annotations"]["coterie.gpu/devices"])
    return {
        hold["name"]: {int(one.rpartition("-")[2]) for one in hold["ids"]}
        for hold in report.get("holds", [])
    }


def cluster_of(name, order, sizes):
    """A node whose GPUs are given away in an order, to pods of some sizes as long as they last."""
    holds, pods, left = [], [], list(order)
    for k, size in enumerate(sizes):
        if size > len(left):
            break
        holds.append(held_by(f"p{k}", "n1", sorted(left[:size])))
        pods.append(pod(f"p{k}", "n1", size))
        left = left[size:]
    one = node("n1", name, report=DevicesReport(1, holds=tuple(holds)))
    return one, pods, set(left)


@pytest.mark.parametrize("name", SMALL)
@given(data=st.data())
@settings(max_examples=up_to(20))
def test_every_figure(name, data):
    """Has, could have and shares of each pod."""
    n = load_recording(name).n_gpus
    order = data.draw(st.permutations(range(n)))
    sizes = data.draw(st.lists(st.integers(1, 4), max_size=5))
    one, pods, free = cluster_of(name, order, sizes)
    report = audit(read_cluster(kube_list(one), kube_list(*pods)))
    owned = owners(one)
    several = {pod_name: gpus for pod_name, gpus in owned.items() if len(gpus) > 1}
    assert {entry.pod: set(entry.gpus) for entry in report.sets} == several
    for entry in report.sets:
        gpus = owned[entry.pod]
        best_empty = values(name)[1][len(gpus)]
        could = max(worth(name, s) for s in combinations(sorted(gpus | free), len(gpus)))
        assert entry.has.gbytes_per_s == round(worth(name, gpus), 3)
        assert entry.has.share == pytest.approx(worth(name, gpus) / best_empty, abs=1e-4)
        assert entry.could_have.gbytes_per_s == round(could, 3)
        assert entry.could_have.gbytes_per_s == round(worth(name, entry.could_have_gpus), 3)
        assert entry.loss == pytest.approx(1 - worth(name, gpus) / could, abs=1e-4)
    assert sum(machine.n_free for machine in report.machines) == len(free)
    near = [
        worth(name, s) >= 0.9 * values(name)[1][len(s)]
        for s in combinations(sorted(free), 4 if n >= 4 else 2)
    ]
    assert report.n_stranded == (0 if any(near) else len(free))


@pytest.mark.parametrize("name", SMALL)
@given(data=st.data())
@settings(max_examples=up_to(20))
def test_best_effort_is_between_the_worst_and_the_best(name, data):
    """Its own rule is compared elsewhere with the library's enumeration."""
    n = load_recording(name).n_gpus
    order = data.draw(st.permutations(range(n)))
    one, pods, free = cluster_of(name, order, [data.draw(st.integers(2, n))])
    (entry,) = audit(read_cluster(kube_list(one), kube_list(*pods))).sets
    pool = sorted(set(entry.gpus) | free)
    possible = [worth(name, s) for s in combinations(pool, len(entry.gpus))]
    assert entry.best_effort is not None
    assert min(possible) - 1e-3 <= entry.best_effort.gbytes_per_s <= max(possible) + 1e-3
