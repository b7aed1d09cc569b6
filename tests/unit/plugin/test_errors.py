"""Which of several errors that end a plugin is reported."""

from __future__ import annotations

import pytest

from plugin.errors import ReadingError, RegistrationError, first_plugin_error

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
def test_the_first_plugin_error_is_reported(errors):
    """People read one sentence, not a tree of tracebacks."""
    assert first_plugin_error(ExceptionGroup("plugin", errors)) is OURS


def test_without_a_plugin_error_all_errors_are_kept():
    """None of them may hide another."""
    errors = ExceptionGroup("plugin", [FOREIGN, ExceptionGroup("socket", [ValueError("odd")])])
    assert first_plugin_error(errors) is errors
