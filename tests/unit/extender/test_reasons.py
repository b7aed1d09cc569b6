"""The closed set of refusals."""

from __future__ import annotations

import pytest

from extender.reasons import Reason, from_unfit
from tests.docs.markdown import ROOT
from topology.outcome import UnfitReason


@pytest.mark.parametrize("unfit", UnfitReason)
def test_what_the_core_refuses_has_the_same_name_and_sentence(unfit):
    """A reason that the core gains must not become a KeyError on the request path."""
    assert from_unfit(unfit).value == unfit.value


@pytest.mark.parametrize("reason", Reason)
def test_reasons_are_constant_sentences_that_the_documentation_explains(reason):
    """No number, no name: text that varied would requeue the pod for ever."""
    assert not any(c.isdigit() or c in "{}%" for c in reason.value)
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert f"| `{reason.label}` | {reason.value} |" in page
