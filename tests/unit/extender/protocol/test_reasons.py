"""The closed set of refusals."""

from __future__ import annotations

import pytest

from extender.protocol import Reason, from_unfit
from topology.select import UnfitReason


@pytest.mark.parametrize("unfit", UnfitReason)
def test_what_the_core_refuses_has_the_same_name_and_sentence(unfit):
    """A reason that the core gains must not become a KeyError on the request path."""
    reason = from_unfit(unfit)
    assert reason.name == unfit.name
    if reason is not Reason.TOO_FEW_GPUS:
        assert reason.value == unfit.value


def test_too_few_gpus_is_said_of_the_pod():
    """Nine containers of one GPU each request less than the node has, the pod more."""
    assert Reason.TOO_FEW_GPUS.value == "node has fewer GPUs than the pod requests"


@pytest.mark.parametrize("reason", Reason)
def test_reasons_are_constant_sentences_with_advice(reason):
    """No number, no name: text that varied would requeue the pod for ever."""
    assert not any(c.isdigit() or c in "{}%" for c in reason.value)
    assert reason.advice
