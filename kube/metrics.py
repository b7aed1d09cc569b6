"""The registry of a program's metrics, with what each program reports of itself."""

from __future__ import annotations

import re

from prometheus_client import CollectorRegistry, Info, ProcessCollector, disable_created_metrics

from topology.cli.program import version

__all__ = ["program_registry"]


def program_registry(name: str) -> CollectorRegistry:
    """Make a registry with the program's build and its process; metrics start with `name`.

    It is not prometheus_client's global one, so that two programs in one process (tests) do not
    mix.
    """
    # Without: a series for each counter, with its time of creation, that nothing reads.
    disable_created_metrics()  # type: ignore[no-untyped-call] # the library's gap
    registry = CollectorRegistry()
    build = Info(
        f"{name}_build",
        "1, with version and revision of the program: shows who runs what.",
        registry=registry,
    )
    build.info(_build_labels())
    ProcessCollector(registry=registry)
    return registry


def _build_labels() -> dict[str, str]:
    """Split `0.2.1.dev5+g7ef49e1`, or `v0.2.0-5-g7ef49e1` (git describe)."""
    release, *revision = re.split(r"(?:\+|-\d+-)g(?=[0-9a-f])", version(), maxsplit=1)
    return {"version": release, "revision": "".join(revision)}
