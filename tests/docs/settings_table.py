"""Settings as Markdown, rendered from the fields of a class; the extender's own page of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from extender.config import ENV_PREFIX, ExtenderSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pydantic import BaseModel

BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
}
INTRODUCTION = (
    f"`candidate_limit: 50` in the file is `{ENV_PREFIX}CANDIDATE_LIMIT=50` in the environment "
    "and `--candidate-limit 50` as a flag; the other settings alike.\n"
    f"The file is YAML, named by `--config` or `{ExtenderSettings.layout.variable}`.\n"
)


def settings_section() -> str:
    """The section of the page: how names map, then one row per field, in the order of the class."""
    rows = [(f"`{name}`", *rest) for name, *rest in described(ExtenderSettings)]
    return f"\n{INTRODUCTION}\n{table(('setting', 'values', 'default', 'meaning'), rows)}\n"


def described(settings: type[BaseModel]) -> list[tuple[str, str, str, str]]:
    """Name, values, default and meaning of each field, in the order of the class."""
    schema: dict[str, Any] = settings.model_json_schema(by_alias=False)
    required = set(schema.get("required", ()))
    rows: list[tuple[str, str, str, str]] = []
    for name, field in schema["properties"].items():
        if "description" not in field:
            msg = f"setting {name} has no description, expected unit, range and why that default"
            raise ValueError(msg)
        shown = "required" if name in required else default(field["default"])
        meaning = " ".join(field["description"].split())
        rows.append((name, values(field, schema.get("$defs", {})), shown, meaning))
    return rows


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |\n" for row in lines)


def values(field: dict[str, Any], definitions: dict[str, Any]) -> str:
    """Say in words which values a field of a JSON schema takes."""
    if "$ref" in field:
        return values(definitions[field["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in field:
        return " or ".join(values(choice, definitions) for choice in field["anyOf"])
    if "enum" in field:
        return ", ".join(f"`{choice}`" for choice in field["enum"])
    kind = {"null": "nothing", "array": "list"}.get(field["type"], field["type"])
    if field.get("items"):
        kind = f"list of {values(field['items'], definitions)}"
    kind = field.get("format", kind)
    return ", ".join([kind, *(f"{BOUNDS[key]} {field[key]}" for key in BOUNDS if key in field)])


def default(value: object) -> str:
    """Show a default as YAML reads it; nothing where there is none."""
    return "nothing" if value is None else f"`{json.dumps(value, ensure_ascii=False)}`"
