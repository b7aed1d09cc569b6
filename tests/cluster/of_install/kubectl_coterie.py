"""`kubectl coterie` as people run it: kubectl finds it on PATH, with a user's kubeconfig."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster.control.control_plane import CommandFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.control.control_plane import ControlPlane

__all__ = ["KubectlCoterie"]

WITHIN_S = 120.0
PROGRAMS = Path(sys.executable).parent


@dataclass(frozen=True, slots=True)
class KubectlCoterie:
    """Runs it as a user: the admin, or the owner of another kubeconfig."""

    plane: ControlPlane
    kubeconfig: Path | None = None

    def __call__(self, *arguments: str) -> str:
        """Its standard output. Raises `CommandFailed` with its standard error."""
        done = self.run(*arguments)
        if done.returncode != 0:
            msg = f"kubectl coterie {' '.join(arguments)}: {done.returncode}: {done.stderr}"
            raise CommandFailed(msg)
        return done.stdout

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """What it printed, and its exit code."""
        return subprocess.run(
            [self.plane.binaries.kubectl, "coterie", *arguments],
            input=stdin,
            env=self._environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=WITHIN_S,
        )

    @contextmanager
    def running(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """The program while it runs; it is ended by SIGINT, as by ctrl-C."""
        command = [str(PROGRAMS / "kubectl-coterie"), *arguments]
        with subprocess.Popen(
            command, env=self._environment(), stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                yield process
            finally:
                process.send_signal(2)
                process.wait(timeout=WITHIN_S)

    def _environment(self) -> dict[str, str]:
        return {
            "HOME": str(self.plane.folder),
            "KUBECONFIG": str(self.kubeconfig or self.plane.admin),
            "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
        }
