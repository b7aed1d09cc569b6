"""What the tests of groups on a network share."""

from __future__ import annotations

import pytest

from benchmarks.groups.hosts import Hosts
from topology.groups import DomainPath, DomainStep

LEAVES = {"P1": {"S1": 3, "S2": 2}, "P2": {"S1": 4}}
"""Hosts of each leaf under two spines; leaves of the same name are different ones."""


@pytest.fixture
def paths():
    """Nine hosts, in the order of the tree: three of P1/S1, two of P1/S2, four of P2/S1."""
    found: dict[str, DomainPath] = {}
    for spine, leaves in LEAVES.items():
        for leaf, n_hosts in leaves.items():
            steps = (("leaf", leaf), ("spine", spine), ("core", "D"))
            path = DomainPath(tuple(DomainStep(level, "test", value) for level, value in steps))
            found |= {f"{spine}-{leaf}-{i}": path for i in range(n_hosts)}
    return found


@pytest.fixture
def hosts_of(paths):
    """Hosts with so many GPUs free, in the order of the tree; all where nothing is said."""

    def make(*free, seed=0):
        hosts = Hosts(paths, seed)
        for host, n_free in enumerate(free):
            hosts.take([(host, 8 - n_free)], 1)
        return hosts

    return make
