"""What a JSON Schema says about a value, as far as the chart's schema goes (draft 7).

Helm has a whole validator, and the tests with Helm use it; this one is for tests without. A keyword
that it does not know is an error, so that it never passes what it did not check.
"""

from __future__ import annotations

import re
from typing import Any

TYPES = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}
ANNOTATIONS = {"$schema", "title", "definitions"}


def faults(schema: dict[str, Any], value: Any, root: dict[str, Any], at: str = "") -> list[str]:
    """What is wrong with a value, each with its path; empty where nothing is."""
    if "$ref" in schema:
        return faults(root["definitions"][schema["$ref"].rpartition("/")[2]], value, root, at)
    found: list[str] = []
    for keyword, wanted in schema.items():
        if keyword not in ANNOTATIONS:
            found += CHECKS[keyword](schema, wanted, value, root, at)
    return found


def _type(_schema, wanted, value, _root, at):
    names = [wanted] if isinstance(wanted, str) else wanted
    for name in names:
        if isinstance(value, TYPES[name]) and (name == "boolean" or not isinstance(value, bool)):
            return []
    return [f"{at} is {value!r}, expected {' or '.join(names)}"]


def _enum(_schema, wanted, value, _root, at):
    return [] if value in wanted else [f"{at} is {value!r}, expected one of {wanted}"]


def _pattern(_schema, wanted, value, _root, at):
    if not isinstance(value, str) or re.search(wanted, value):
        return []
    return [f"{at} is {value!r}, expected {wanted}"]


def _least(_schema, wanted, value, _root, at):
    if isinstance(value, (int, float)):
        return [] if value >= wanted else [f"{at} is {value!r}, expected at least {wanted}"]
    if isinstance(value, (str, list)) and len(value) < wanted:
        return [f"{at} is {value!r}, expected at least {wanted} of them"]
    return []


def _unique(_schema, _wanted, value, _root, at):
    return [] if len(set(value)) == len(value) else [f"{at} has a value twice"]


def _properties(_schema, wanted, value, root, at):
    if not isinstance(value, dict):
        return []
    return [
        fault
        for key in wanted.keys() & value.keys()
        for fault in faults(wanted[key], value[key], root, f"{at}.{key}")
    ]


def _additional(schema, wanted, value, root, at):
    if wanted is True or not isinstance(value, dict):
        return []
    others = value.keys() - schema.get("properties", {}).keys()
    if wanted is False:
        return [f"{at}.{key} is unknown" for key in others]
    return [fault for key in others for fault in faults(wanted, value[key], root, f"{at}.{key}")]


def _names(_schema, wanted, value, root, at):
    return [fault for key in value for fault in faults(wanted, key, root, f"{at}: key")]


def _items(_schema, wanted, value, root, at):
    if not isinstance(value, list):
        return []
    return [
        fault
        for number, one in enumerate(value)
        for fault in faults(wanted, one, root, f"{at}[{number}]")
    ]


def _required(_schema, wanted, value, _root, at):
    if not isinstance(value, dict):
        return []
    return [f"{at}.{key} is missing" for key in wanted if key not in value]


def _any_of(_schema, wanted, value, root, at):
    found = [faults(one, value, root, at) for one in wanted]
    return [] if [] in found else found[0]


CHECKS = {
    "type": _type,
    "required": _required,
    "enum": _enum,
    "pattern": _pattern,
    "minimum": _least,
    "minLength": _least,
    "minItems": _least,
    "uniqueItems": _unique,
    "properties": _properties,
    "additionalProperties": _additional,
    "propertyNames": _names,
    "items": _items,
    "anyOf": _any_of,
}
