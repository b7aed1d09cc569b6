"""Which files of packages the images leave out, and why.

A pattern is a glob over the path, in which `*` also crosses folders; one that begins with `!` takes
back what others before it match. What a list leaves out is proven by the test that imports every
module and starts both programs in the images.
"""

from __future__ import annotations

import fnmatch
import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deploy.release.oci import Entry, Tree

__all__ = ["BASE_UNUSED", "DEPENDENCIES_UNUSED", "OWN_UNUSED", "is_unused", "pruned"]

_STDLIB = "usr/lib/python3*/"

BASE_UNUSED = (
    # For people at a terminal; licences stay.
    "usr/share/doc/*",
    "!usr/share/doc/*/copyright",
    "usr/share/man/*",
    "usr/share/info/*",
    "usr/share/locale/*",
    "usr/share/lintian/*",
    "usr/share/bug/*",
    "usr/share/applications/*",
    "usr/share/pixmaps/*",
    "usr/share/binfmts/*",
    "usr/share/gcc/*",
    "usr/share/gdb/*",
    # Scripts for shells, which the image has none of.
    "usr/sbin/*",
    "etc/profile*",
    "etc/update-motd.d/*",
    "etc/skel/*",
    "usr/share/base-files/*",
    # Character sets that only iconv(3) reads.
    "usr/lib/*/gconv/*",
    # Packages for developers and windows, of which Debian's standard library has parts.
    *(
        f"{_STDLIB}{name}/*"
        for name in ("ensurepip", "idlelib", "pydoc_data", "test", "tkinter", "turtledemo", "venv")
    ),
)
"""Of Debian's packages, by path in the root."""

DEPENDENCIES_UNUSED = (
    # Scripts that begin with the path of the interpreter that installed them.
    "bin/*",
    # How they were installed, which differs between two checkouts.
    "*.dist-info/RECORD",
    "*.dist-info/INSTALLER",
    "*.dist-info/REQUESTED",
    "*.dist-info/direct_url.json",
    "*.dist-info/uv_cache.json",
    # Read by type checkers and compilers only.
    "*.pyi",
    "*.pyx",
    "*.pxd",
    "*.h",
    "*.c",
    "*.a",
    # Kubernetes' client for all APIs: the programs use its transport and its configuration.
    "kubernetes/client/*",
    "kubernetes/dynamic/*",
    "kubernetes/utils/*",
    "kubernetes/aio/client/api/*",
    "kubernetes/aio/client/models/*",
    "!kubernetes/aio/client/models/__init__.py",
    "kubernetes/aio/dynamic/*",
    "kubernetes/*_test.py",
    # Tests of numpy and networkx, and numpy's compiler driver and headers.
    "numpy/*tests/*",
    "numpy/f2py/*",
    "numpy/_core/include/*",
    "networkx/*tests/*",
)
"""Of Python distributions, by path in their common folder."""

OWN_UNUSED = (
    "*__pycache__/*",
    "*.pyi",
    "*.proto",
    # The command coterie-topology and its pictures, for which neither program has matplotlib. The
    # read API has the layout.
    "topology/__main__.py",
    "topology/draw/render.py",
    "topology/draw/scene.py",
    "topology/draw/shapes.py",
    "topology/cli/commands.py",
    "topology/cli/options.py",
    "topology/cli/printing.py",
    "topology/cli/reading.py",
    "topology/cli/this_machine.py",
)
"""Of the project's own packages, by path in the checkout."""


def is_unused(path: str, patterns: Sequence[str]) -> bool:
    """Whether the patterns leave a path out; the last one that matches decides."""
    unused = False
    for pattern in patterns:
        wanted = pattern.startswith("!")
        if unused == wanted and _compiled(pattern.removeprefix("!")).match(path):
            unused = not wanted
    return unused


def pruned(tree: Tree, patterns: Sequence[str]) -> dict[str, Entry]:
    """The tree without what the patterns leave out."""
    return {path: entry for path, entry in tree.items() if not is_unused(path, patterns)}


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(pattern))
