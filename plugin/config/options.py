"""Command-line options of the plugin's settings, made from the fields themselves.

What it answers: a command with one option for each setting and for NVIDIA's other names of it, and
how Go programs write booleans. It must never check a value (`plugin.config.load_settings` does), so
that every layer is judged by the same rules.
"""

from __future__ import annotations

import functools
import inspect
import re
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from plugin.config.load_settings import CONFIG_FLAG, CONFIG_VARIABLE, other_names
from plugin.config.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["go_booleans", "takes_settings"]

T = TypeVar("T")

_SENTENCE = re.compile(r"(?<=[^.])[.:;](?= |$)")
"""The end of a description's first thought; the whole stands in docs/plugin.md."""


def takes_settings(command: Callable[..., T]) -> Callable[..., T]:
    """Give a typer command the options of all settings in the place of its parameter `flags`.

    It is handed those that were given, by setting, as `load_settings` takes them.
    """
    options = {name: _option(name) for name in Settings.model_fields}
    options[CONFIG_FLAG] = _parameter(
        CONFIG_FLAG,
        typer.Option("--config-file", help=f"Settings file; else {CONFIG_VARIABLE} names it."),
        str,
    )
    own = inspect.signature(command, eval_str=True)

    @functools.wraps(command)
    def run(**given: object) -> T:
        chosen = {name: given.pop(name) for name in options}
        return command(
            **given, flags={n: value for n, value in chosen.items() if value is not None}
        )

    parameters = [p for p in own.parameters.values() if p.name != "flags"]
    parameters += options.values()
    signature = own.replace(parameters=parameters)
    run.__signature__ = signature  # type: ignore[attr-defined]  # what inspect and typer ask for
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def go_booleans(arguments: Sequence[str]) -> list[str]:
    """Write out boolean options that stand alone, as Go's programs take them.

    NVIDIA's plugin knows `--pass-device-specs` and `--pass-device-specs=false`, and never takes the
    next word as the value.

    >>> go_booleans(["serve", "--gds-enabled", "--imex-required=false", "--", "--gds-enabled"])
    ['serve', '--gds-enabled=true', '--imex-required=false', '--', '--gds-enabled']
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    booleans = {
        flag
        for name, field in Settings.model_fields.items()
        if field.annotation is bool
        for flag in _flags(name)
    }
    written = [f"{word}=true" if word in booleans else word for word in arguments[:end]]
    return [*written, *arguments[end:]]


def _flags(name: str) -> tuple[str, ...]:
    return tuple(f"--{flag}" for flag in (name.replace("_", "-"), *other_names(name).flags))


def _option(name: str) -> inspect.Parameter:
    field = Settings.model_fields[name]
    told = _SENTENCE.split(field.description or "")[0]
    kind = list[str] if str(field.annotation).startswith("tuple") else str
    return _parameter(name, typer.Option(*_flags(name), help=f"{told}."), kind)


def _parameter(name: str, option: Any, kind: type) -> inspect.Parameter:  # noqa: ANN401 - typer's own type
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, option],
    )
