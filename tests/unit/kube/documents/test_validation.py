"""Errors of pydantic as one sentence."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from kube.documents import first_fault


class Part(BaseModel):
    """Something inside."""

    kind: Literal["a", "b"]


class Whole(BaseModel):
    """One field of each kind of fault."""

    model_config = ConfigDict(extra="forbid")

    count: Annotated[int, Field(le=4)] = 0
    word: Annotated[str, Field(pattern="^[a-z]+$")] = "x"
    parts: list[Part] = []
    own: str = ""

    @field_validator("own")
    @classmethod
    def _check(cls, value: str) -> str:
        msg = "expected a colour" if value == "red" else "own is odd, expected even"
        raise ValueError(msg)


def fault(content: object, **more: object) -> str:
    """What is said of this content."""
    with pytest.raises(ValidationError) as caught:
        Whole.model_validate(content)
    return first_fault(caught.value, whole="content", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (3, "content is 3, expected an object"),
        ({"count": 5}, "count is 5, expected less than or equal to 4"),
        ({"word": "X"}, "word is 'X', expected text that matches ^[a-z]+$"),
        ({"word": 1}, 'word is 1, expected a string, so in quotes: "1"'),
        ({"parts": {}}, "parts is {}, expected a list"),
        ({"parts": [{"kind": "c"}]}, "parts.0.kind is 'c', expected 'a' or 'b'"),
        ({"parts": [{}]}, "parts.0.kind is missing, expected a value"),
        ({"own": 40}, 'own is 40, expected a string, so in quotes: "40"'),
        ({"own": True}, 'own is True, expected a string, so in quotes: "true"'),
        ({"own": [1]}, "own is [1], expected a string"),
        ({"other": 1}, "other is not a known key, its value is 1"),
        ({"own": "red"}, "own is 'red', expected a colour"),
        ({"own": "odd"}, "own is 'odd': own is odd, expected even"),
    ],
)
def test_a_fault_is_one_sentence(content, sentence):
    """Place, value, expectation."""
    assert fault(content) == sentence


def test_the_caller_adds_what_it_knows():
    """Kinds of missing fields, origins of values, and tags of a union that were not written."""
    assert fault({"parts": [{}]}, kinds={"kind": "a letter"}).endswith("missing, expected a letter")
    place = fault({"count": 5}, origins={"count": "flag, --count"})
    assert place == "count (flag, --count) is 5, expected less than or equal to 4"
    assert fault({"count": 5}, tags={"count"}).startswith("content is 5")
