"""Which of the errors that end an agent is told. What agents do is in tests/integration/plugin."""

from __future__ import annotations

import pytest

from plugin.agent import _first_of_ours
from plugin.errors import ReadingError, RegistrationError

OURS, LATER, FOREIGN = ReadingError("ours"), RegistrationError("later"), OSError("foreign")


@pytest.mark.parametrize(
    "errors",
    [
        pytest.param([OURS], id="alone"),
        pytest.param([FOREIGN, OURS, LATER], id="among others, before one of the same kind"),
        pytest.param([ExceptionGroup("registration", [OURS])], id="of a part of a part"),
        pytest.param(
            [
                ExceptionGroup("socket", [FOREIGN]),
                FOREIGN,
                ExceptionGroup("servers", [ExceptionGroup("one", [FOREIGN, OURS]), LATER]),
                LATER,
            ],
            id="deep among others",
        ),
    ],
)
def test_an_agent_ends_by_its_first_error_of_ours(errors):
    """People read one sentence, not a tree of tracebacks."""
    assert _first_of_ours(ExceptionGroup("agent", errors)) is OURS


def test_faults_that_nobody_foresaw_are_all_told():
    """None of them may be hidden by another."""
    errors = ExceptionGroup("agent", [FOREIGN, ExceptionGroup("socket", [ValueError("odd")])])
    assert _first_of_ours(errors) is errors
