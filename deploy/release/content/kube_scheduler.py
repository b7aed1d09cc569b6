"""The layer of kube-scheduler: the static program that the test clusters run, and nothing else.

It is built from Kubernetes' Go modules (`tests.cluster.programs`), in minutes where it is not in
the cache yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deploy.release.content.base import ACCOUNTS
from deploy.release.errors import StepFailed
from deploy.release.oci import File, machine_architecture

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from deploy.release.oci import Architecture, Entry

__all__ = ["scheduler_tree", "scheduler_version"]

_PROGRAM = "usr/local/bin/kube-scheduler"


def scheduler_version(minor: str) -> str:
    """The patch release of a Kubernetes minor that is pinned, `v1.36.3`; raises `StepFailed`."""
    from tests.cluster.programs.versions import (  # noqa: PLC0415 - the two own images need no Go
        UnknownVersion,
        kubernetes,
    )

    try:
        return kubernetes(minor).version
    except UnknownVersion as error:
        raise StepFailed(str(error)) from error


def scheduler_tree(
    minor: str, architecture: Architecture, checkout: Path, say: Callable[[str], None]
) -> dict[str, Entry]:
    """The files of that image; builds the program where it is not in the cache.

    Raises `StepFailed`.
    """
    from tests.cluster.programs.build import (  # noqa: PLC0415 - as above
        BuildFailed,
        kube_scheduler,
    )
    from tests.cluster.programs.toolchain import ToolchainMissing  # noqa: PLC0415 - as above

    is_foreign = architecture != machine_architecture()
    try:
        program = kube_scheduler(minor, architecture.name if is_foreign else None, say)
    except (BuildFailed, ToolchainMissing) as error:
        raise StepFailed(str(error)) from error
    # Kubernetes has the same licence, word for word.
    licence = File(checkout / "LICENSE")
    return ACCOUNTS | {
        _PROGRAM: File(program, 0o755),
        "usr/share/doc/kube-scheduler/LICENSE": licence,
    }
