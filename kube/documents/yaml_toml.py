"""Reads YAML and TOML that people write.

Returns the content as plain values, or says in one sentence what is wrong with the text. A key that
is given twice is refused, since it is unclear which is meant (PyYAML takes the last). It never
opens a file, and raises nothing but `DocumentError`, whatever the text: the parsers themselves also
raise `RecursionError` for deep nesting and `TypeError`, `ValueError` or `OverflowError` for invalid
dates and numbers.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import yaml
from yaml.composer import ComposerError

from kube.errors import DocumentError
from topology.errors import quote

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["as_json", "read_toml", "read_yaml", "read_yaml_documents"]

_INDENT = re.compile(r"^[ \t]+", re.MULTILINE)
_FAULTS = (TypeError, ValueError, OverflowError, RecursionError)


def read_yaml(text: str) -> object:
    """Read one YAML document.

    Raises `DocumentError`.

    >>> read_yaml("{a: 1, a: 2}")
    Traceback (most recent call last):
    kube.errors.DocumentError: line 1, column 8: key 'a' is given twice, expected once
    """
    if (found := _json_of(text)) is not None:
        return found
    with _faults():
        # The loader is yaml's safe one, made stricter.
        return yaml.load(_indented(text), Loader=_Loader)  # noqa: S506


def read_yaml_documents(text: str) -> list[object]:
    r"""Read all documents of a YAML text; those that are empty are left out.

    Raises `DocumentError`.

    >>> read_yaml_documents("---\na: 1\n---\n# nothing\n---\nb: 2\n")
    [{'a': 1}, {'b': 2}]
    """
    if (found := _json_of(text)) is not None:
        return [found]
    with _faults():
        documents = yaml.load_all(_indented(text), Loader=_Loader)
        return [one for one in documents if one is not None]


def _json_of(text: str) -> object:
    """The value of a JSON text; None where it is none, gives a key twice, or is no finite number.

    YAML has JSON in it, but PyYAML takes no tab before a token.
    """
    bare = text.lstrip("\ufeff \t\r\n")
    if not bare.startswith(("{", "[")):
        return None
    try:
        return json.loads(
            bare, object_pairs_hook=_of_pairs, parse_constant=_finite, parse_float=_finite
        )
    except (ValueError, RecursionError):
        return None


def _of_pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len(found := dict(pairs)) < len(pairs):
        msg = "a key is given twice"
        raise ValueError(msg)
    return found


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        msg = f"{text} is no finite number"
        raise ValueError(msg)
    return number


def _indented(text: str) -> str:
    """The text with spaces for tabs that indent what is nearly JSON, as Go's MarshalIndent does."""
    if not text.lstrip("\ufeff \t\r\n").startswith(("{", "[")):
        return text
    return _INDENT.sub(lambda found: found[0].replace("\t", " "), text)


@contextmanager
def _faults() -> Generator[None]:
    """What the YAML parser raises, as `DocumentError`."""
    try:
        yield
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
        # Only with its context is "but found another document" a sentence.
        before = f"{error.context}, " if str(error.problem).startswith("but ") else ""
        msg = f"{where}{before}{error.problem}"
        raise DocumentError(msg) from error
    except yaml.YAMLError as error:
        msg = str(error).partition("\n")[0]
        raise DocumentError(msg) from error
    except _FAULTS as error:
        raise DocumentError(_sentence(error)) from error


def read_toml(text: str) -> object:
    """Read a TOML document.

    Raises `DocumentError`.
    """
    try:
        return tomllib.loads(text)
    except _FAULTS as error:
        raise DocumentError(_sentence(error)) from error


def as_json(content: object) -> str:
    """Write what was read as JSON; dates become text, as values only.

    Raises `DocumentError` where JSON has no form for it: keys that are dates, a list inside itself.
    """
    try:
        return json.dumps(content, default=str)
    except _FAULTS as error:
        raise DocumentError(_sentence(error)) from error


def _sentence(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply, expected a few levels"
    return str(error)


class _Loader(yaml.SafeLoader):
    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:  # noqa: ANN401 - stubs err
        """Refuse equal keys; here, since constructing a mapping merges others into it."""
        node = super().compose_mapping_node(anchor)
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                name = (key.tag, key.value)
                if name in seen:
                    problem = f"key {quote(key.value)} is given twice, expected once"
                    raise ComposerError(None, None, problem, key.start_mark)
                seen.add(name)
        return node
