"""Random groups beside single pods while everything around them dies.

As short as every change allows, and as light as a slow machine needs to be done in time;
`python -m tests.cluster faults` runs it larger and with replicas.
"""

from __future__ import annotations

import os

import pytest

from tests.cluster.fleet.group_run import Run, run_groups

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.own_plane]

SEED = int(os.environ.get("COTERIE_SEED", "1"))


def test_groups_outlive_every_fault(control_plane):
    """None was partly bound for longer than `httpTimeout`; all are complete in the end."""
    outcome = run_groups(control_plane, Run(n_groups=24, groups_per_s=0.6, seed=SEED))
    print(outcome.summary())  # noqa: T201 - `pytest -s` shows it
    assert outcome.broken() == []
    assert outcome.took_s is not None
