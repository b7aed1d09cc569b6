"""The admission policy of pods' annotations holds the keys and values that the programs read."""

from __future__ import annotations

from textwrap import indent

from tests.docs.markdown import ROOT
from topology.annotations import POD_KEYS, USER_KEYS
from topology.model import names

TEMPLATE = ROOT / "deploy" / "chart" / "templates" / "rights" / "user-keys.yaml"


def listed(names_):
    """A list of CEL, on lines of its own."""
    return "[" + ", ".join(f"'{name}'" for name in names_) + "]"


def key_variables():
    """The variables that hold keys and values, as YAML."""
    choices = [
        f"'{key.name}': {listed(choice.value for choice in key.choices)}"
        for key in POD_KEYS
        if key.choices
    ]
    unmatched = []
    for key in POD_KEYS:
        if key.patterns:
            value = f"variables.annotations['{key.name}']"
            match = " &&\n".join(f"{value}.matches('^(?:{one})$')" for one in key.patterns)
            unmatched.append(
                f"('{key.name}' in variables.annotations &&\n!({match}) ?\n"
                f"['annotation {key.name} is not {key.expected}']\n: [])"
            )
    expressions = {
        "user_keys": ",\n".join(listed(USER_KEYS).split(",")).replace("\n ", "\n"),
        "own_keys": ",\n".join(listed(names.OWN_KEYS).split(",")).replace("\n ", "\n"),
        "choices": "{" + ",\n".join(choices) + "}",
        "unmatched": " +\n".join(unmatched),
        "needs": "{"
        + ",\n".join(f"'{one.name}': '{one.needs}'" for one in POD_KEYS if one.needs)
        + "}",
    }
    return "".join(
        f"    - name: {name}\n      expression: >-\n{indent(text, ' ' * 8)}\n"
        for name, text in expressions.items()
    )


def test_keys_and_values_are_generated(check_golden):
    """What is refused at creation and what filter refuses must be the same."""
    text = TEMPLATE.read_text(encoding="utf-8")
    before, mark, rest = text.partition("rewritten by `make golden`\n")
    _, end, after = rest.partition("    # end of pod keys\n")
    assert mark
    assert end
    check_golden(TEMPLATE, before + mark + key_variables() + end + after)
