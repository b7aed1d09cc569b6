"""kube-scheduler's configurations in ConfigMaps."""

from __future__ import annotations

import json

import pytest

from kubectl_coterie.cluster import Read
from kubectl_coterie.installation.scheduler_configs import leader_leases, scheduler_configs


def config_maps(**election):
    """One with a configuration, one that could not be read."""
    config = {"kind": "KubeSchedulerConfiguration", "leaderElection": election}
    data = {"config.yaml": json.dumps(config), "broken": "a: [", "list": "[1]", "other": "{}"}
    return {"ns/a": Read({"data": data}), "ns/b": Read(missing="forbidden")}


def test_other_files_are_passed_over():
    """A ConfigMap may hold anything."""
    assert [where for where, _ in scheduler_configs(config_maps())] == [
        "ConfigMap ns/a (config.yaml)"
    ]


@pytest.mark.parametrize(
    ("election", "leases"),
    [
        ({"resourceNamespace": "ns", "resourceName": "s"}, ["ns/s"]),
        ({"resourceNamespace": "ns", "resourceName": "s", "leaderElect": False}, []),
        ({"resourceName": "s"}, []),
    ],
)
def test_the_lease_is_the_one_that_it_elects_by(election, leases):
    """None where it elects no leader."""
    assert list(leader_leases(config_maps(**election))) == leases
