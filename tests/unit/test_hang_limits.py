"""After how long a test counts as hanging (`tests/conftest.py`)."""

from __future__ import annotations

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, rule


class Machine(RuleBasedStateMachine):
    """A model as those of the extender's state, which does nothing."""

    @rule()
    def step(self):
        """One of many steps."""


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=1, stateful_step_count=1)


def test_what_draws_many_examples_has_its_time(request):
    """Of all tests that are collected, models too: hypothesis marks them late."""
    drawing = [one for one in request.session.items if one.get_closest_marker("hypothesis")]
    marks = {one.nodeid: one.get_closest_marker("timeout") for one in drawing}
    assert any(name.endswith("TestMachine::runTest") for name in marks)
    assert [name for name, mark in marks.items() if mark is None or mark.args[0] < 300] == []
