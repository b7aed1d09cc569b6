"""What the tests of groups share."""

from __future__ import annotations

import pytest

from topology.groups import DomainPath, DomainStep, build_tree


@pytest.fixture
def tree_of():
    """Build a tree from each node's domains, nearest first, as (level, value)."""

    def make(nodes):
        paths = {
            name: DomainPath(tuple(DomainStep(level, "test", value) for level, value in steps))
            for name, steps in nodes.items()
        }
        return build_tree(paths)

    return make
