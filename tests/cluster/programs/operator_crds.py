"""The Prometheus operator's own CustomResourceDefinitions, from its Go module.

Returns the files of the kinds that the chart makes. They are fetched into the cache, checked
against the hashes of go.sum, and never are a part of this checkout.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster.programs.cache import cache_folder, made_once
from tests.cluster.programs.toolchain import find_go, go_environment
from tests.cluster.programs.versions import GoModule

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.programs.toolchain import Go

__all__ = ["CrdsMissing", "operator_crds"]

OPERATOR = GoModule(
    folder=Path(__file__).parents[1] / "modules" / "prometheus-operator-0.85",
    main="github.com/prometheus-operator/prometheus-operator",
    packages={},
    stamps=False,
)
_FOLDER = Path("example", "prometheus-operator-crd")
_KINDS = ("podmonitors", "prometheusrules")
_FETCH_S = 300


class CrdsMissing(Exception):
    """The module could not be fetched; the message holds what Go said."""


def operator_crds(say: Callable[[str], None] | None = None) -> Path:
    """A folder with one file for each kind; `say` gets progress. Raises `CrdsMissing`."""
    say = say or _say
    go = find_go(OPERATOR.go, say)
    folder = cache_folder() / f"prometheus-operator-crds-{OPERATOR.version}"
    return made_once(folder, partial(_fetch, go=go), say)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - progress is for people


def _fetch(folder: Path, *, go: Go) -> None:
    done = subprocess.run(
        [go.path, "mod", "download", "-json", str(OPERATOR.main)],
        cwd=OPERATOR.folder,
        env=go_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=_FETCH_S,
    )
    if done.returncode != 0:
        msg = f"go mod download of {OPERATOR.main} {OPERATOR.version}:\n{done.stdout}{done.stderr}"
        raise CrdsMissing(msg)
    source = Path(json.loads(done.stdout)["Dir"]) / _FOLDER
    for kind in _KINDS:
        shutil.copyfile(source / f"monitoring.coreos.com_{kind}.yaml", folder / f"{kind}.yaml")
