"""This machine's GPUs, as `nvidia-smi` prints them; what commands without FILE are about.

`nvidia-smi` is NVML's own program, so the command line needs no binding of NVML; `coterie-plugin
discover` reads NVML and sysfs themselves. It runs no other program.
"""

from __future__ import annotations

import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

from topology.errors import ImportFormatError, file_fault, quote
from topology.importers import FileFormat, import_text

if TYPE_CHECKING:
    from topology.model import NodeTopology

__all__ = ["read_this_machine"]

TIMEOUT_S = 60
"""That `nvidia-smi` may take: without persistence mode it first starts the driver on each GPU."""
_NEXT = (
    "give FILE, such as a shipped machine (see `recordings`) or the output of `nvidia-smi topo -m`"
)


def read_this_machine(gpu_model: str | None) -> NodeTopology:
    """Read this machine's GPUs, links and NICs; `gpu_model` where `nvidia-smi` names none.

    Raises `ImportFormatError` with the next step where that is not possible.
    """
    listed, matrix = _run("-L"), _run("topo", "-m")
    topology = import_text(f"{listed}\n{matrix}", gpu_model=gpu_model, file_format=FileFormat.SMI)
    source = "nvidia-smi -L and nvidia-smi topo -m on this machine"
    return replace(topology, name="this machine", source=source)


def _run(*arguments: str) -> str:
    command = " ".join(("nvidia-smi", *arguments))
    try:
        done = subprocess.run(  # noqa: S603 - constant words
            ("nvidia-smi", *arguments),  # noqa: S607 - by PATH, as the user runs it
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError as error:
        msg = (
            f"no FILE, and this machine has no nvidia-smi that could be read in its place; {_NEXT}"
        )
        raise ImportFormatError(msg) from error
    except OSError as error:
        msg = f"no FILE, and {command} cannot be run: {file_fault(error)}; {_NEXT}"
        raise ImportFormatError(msg) from error
    except subprocess.TimeoutExpired as error:
        msg = f"no FILE, and {command} did not end within {TIMEOUT_S} s; {_NEXT}"
        raise ImportFormatError(msg) from error
    printed = done.stdout.decode(errors="replace")
    if done.returncode:
        said = (printed + done.stderr.decode(errors="replace")).strip().partition("\n")[0]
        msg = f"no FILE, and {command} exited {done.returncode} ({quote(said)}); {_NEXT}"
        raise ImportFormatError(msg)
    return printed
