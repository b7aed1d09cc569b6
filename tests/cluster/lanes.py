"""Tests that run when what they test has changed: of the harness, of Kubernetes, of benchmarks.

Decides whether a lane has passed with the same content. That is the lane's tests, all of this
project that they import, the versions that are built and the locked packages; a stamp in the cache
is named by its hash. Nothing else may decide: neither dates nor the history of git.
"""

from __future__ import annotations

import ast
import hashlib
import os
import sys
from pathlib import Path

from tests.cluster.programs.cache import cache_folder

__all__ = ["LANES", "stamp_of"]

LANES = ("of_harness", "of_kubernetes", "of_benchmarks")
"""Folders of tests."""

_ROOT = Path(__file__).resolve().parents[2]
_OWN = ("benchmarks", "extender", "kube", "plugin", "tests", "topology")
_ALWAYS = ("tests/cluster/conftest.py", "tests/cluster/__main__.py", "requirements/dev.txt")


def stamp_of(lane: str, minor: str, root: Path = _ROOT) -> Path:
    """The file that is there once the lane has passed with this content, on that Kubernetes.

    `root` is the checkout.
    """
    found: set[Path] = set()
    cluster = root / "tests" / "cluster"
    for path in (*(cluster / lane).glob("*.py"), *(root / name for name in _ALWAYS)):
        _add(path, root, found)
    found.update(path for path in (cluster / "modules").rglob("*") if path.is_file())
    content = hashlib.sha256(f"{sys.version_info} {minor} {os.geteuid() == 0}".encode())
    for path in sorted(found):
        content.update(f"{path.relative_to(root)}\0".encode())
        content.update(hashlib.sha256(path.read_bytes()).digest())
    return cache_folder() / "lanes" / f"{lane}-{content.hexdigest()[:16]}"


def _add(path: Path, root: Path, found: set[Path]) -> None:
    """Add a file and, if it is a module, all of this project that it imports."""
    if path in found:
        return
    found.add(path)
    if path.suffix != ".py":
        return
    for node in ast.walk(ast.parse(path.read_bytes())):
        match node:
            case ast.Import(names=names):
                modules = [one.name for one in names]
            case ast.ImportFrom(module=str(module), names=names):
                modules = [module, *(f"{module}.{one.name}" for one in names)]
            case _:
                continue
        for module in modules:
            if module.partition(".")[0] in _OWN:
                for source in _sources(module, root):
                    _add(source, root, found)


def _sources(module: str, root: Path) -> list[Path]:
    """The module's file and those of the packages around it."""
    parts = module.split(".")
    files = [root.joinpath(*parts[:n], "__init__.py") for n in range(1, len(parts) + 1)]
    return [one for one in (*files, root.joinpath(*parts).with_suffix(".py")) if one.is_file()]
