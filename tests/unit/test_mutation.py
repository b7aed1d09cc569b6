"""The faults that the mutation check makes: one each, of the kinds that it names."""

from __future__ import annotations

import ast

import pytest

from tests.mutation import mutants_of


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param("a < b", ["a <= b"], id="a comparison"),
        pytest.param("a and b", ["a or b"], id="a condition"),
        pytest.param("a + 1", ["a - 1", "a + 2"], id="a sum and its number"),
        pytest.param("a &= b", ["a |= b"], id="bits"),
        pytest.param("x = True", ["x = False"], id="a truth value"),
        pytest.param("a if b else c", ["a if not b else c"], id="a choice"),
        pytest.param("def f(x: int | None) -> str | None: ...", [], id="no types"),
        pytest.param("@cache(1 << 9, typed=True)\ndef f(): ...", [], id="no decorators"),
        pytest.param("if TYPE_CHECKING:\n    import a", [], id="no imports for type checkers"),
        pytest.param("f(a, 'text')", [], id="nothing to change"),
    ],
)
def test_each_mutant_has_one_fault(source, expected):
    """Two faults could hide each other."""
    assert sorted(one.source for one in mutants_of(source)) == sorted(expected)


def test_the_source_stays_as_it_is():
    """Each fault is made in a copy."""
    source = "def f(a):\n    return a < 2 and a != 3\n"
    found = list(mutants_of(source))
    assert len(found) == len({one.source for one in found}) == 5
    assert all(one.line == 2 and ast.parse(one.source) for one in found)
    assert ast.unparse(ast.parse(source)) not in {one.source for one in found}
