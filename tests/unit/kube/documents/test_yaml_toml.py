"""YAML and TOML that people write: values, or one sentence."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.documents import as_json, read_toml, read_yaml, read_yaml_documents
from kube.errors import DocumentError

DEEP = "[" * 600


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("a: [", "line 1, column 5: expected the node content", id="broken off"),
        pytest.param(DEEP, "nested too deeply", id="600 brackets"),
        pytest.param("a: 2026-13-45", "month must be in 1..12", id="a date that is none"),
        pytest.param("\x00", "unacceptable character", id="a byte that YAML has not"),
        pytest.param("a: 1\na: 2", "line 2, column 1: key 'a' is given twice", id="equal keys"),
        pytest.param("x: [{b: 1, 'b': 2}]", "key 'b' is given twice", id="equal keys inside"),
        pytest.param("? [1]\n: 2", "found unhashable key", id="a list for a key"),
        pytest.param(
            "a: 1\n---\nb: 2",
            "expected a single document in the stream, but found another document",
            id="two documents",
        ),
    ],
)
def test_yaml_that_means_nothing_is_one_sentence(text, message):
    """By line and column where the parser knows them."""
    with pytest.raises(DocumentError) as caught:
        read_yaml(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_json_may_be_indented_by_tabs():
    """As Go's MarshalIndent writes it, and NVIDIA's plugin takes it."""
    text = json.dumps({"a": {"b": ["\t", 1]}}, indent="\t").replace(": ", ":\t")
    assert read_yaml(text) == {"a": {"b": ["\t", 1]}}
    assert read_yaml_documents("\ufeff" + text) == [{"a": {"b": ["\t", 1]}}]


def test_json_is_as_strict_as_yaml():
    """A key twice, and what is no JSON but YAML."""
    with pytest.raises(DocumentError, match="key 'a' is given twice"):
        read_yaml('{"a": 1, "a": 2}')
    assert read_yaml('{"a": NaN, "b": 1e400}') == {"a": "NaN", "b": "1e400"}
    with pytest.raises(DocumentError, match="key 'a' is given twice"):
        read_yaml('{\n\t"a": 1,\n\t"a": 2\n}')
    assert read_yaml_documents('{\n\t"a": 1,\n}\n---\n{\n\t"b": 2\n}') == [{"a": 1}, {"b": 2}]


def test_equal_keys_of_different_mappings_are_fine():
    """A merged mapping may be overridden, which is what merging is for."""
    text = "base: &b {x: 1, y: 2}\nmore: {<<: *b, y: 3}\nlist: [{x: 1}, {x: 2}]\n"
    assert read_yaml(text) == {
        "base": {"x": 1, "y": 2},
        "more": {"x": 1, "y": 3},
        "list": [{"x": 1}, {"x": 2}],
    }


@pytest.mark.parametrize("text", ["a =", f"a = {DEEP}", "a = 1\na = 2", "a = " + "9" * 5000])
def test_toml_that_means_nothing_is_one_sentence(text):
    """TOML's parser refuses equal keys by itself."""
    with pytest.raises(DocumentError) as caught:
        read_toml(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("2026-11-21: x", id="a date for a key"),
        pytest.param("&a [*a]", id="a list inside itself"),
    ],
)
def test_what_json_cannot_express_is_reported(text):
    """YAML can."""
    with pytest.raises(DocumentError):
        as_json(read_yaml(text))


def test_dates_as_values_become_text():
    """A manifest may hold a timestamp."""
    assert as_json(read_yaml("a: 2026-11-21")) == '{"a": "2026-11-21"}'


@given(st.text(max_size=30) | st.text("[]{}:&*a!<? -\n'\"0.", max_size=30))
def test_any_text_is_a_value_or_a_sentence(text):
    """Nothing but the documented error comes out."""
    for read in (read_yaml, read_toml):
        try:
            content = read(text)
        except DocumentError:
            continue
        try:
            as_json(content)
        except DocumentError:
            continue
