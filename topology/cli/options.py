"""The options of `coterie-topology`: what each command takes, and the help.

A value that an option does not take raises `InvalidRequest` with the option, the value and what is
expected. It loads no numpy, so that `--help` is fast.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from topology.annotations import POD_KEYS, Affinity, NicRule, Strength, pod_keys
from topology.cli.program import Parser, add_command, add_completion_command, program_parser
from topology.cli.reading import read_gpus
from topology.errors import InvalidRequest, nearest, quote
from topology.importers import FileFormat
from topology.recordings import recording_names

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["AuditForm", "make_parser"]

E = TypeVar("E", bound=Enum)


class AuditForm(Enum):
    """How an audit is printed."""

    TEXT = "text"
    JSON = "json"


_ABOUT = """\
Ask about a machine: its links, what a GPU set is worth, which set is best.

FILE is a recording of any format (nvidia-smi topo -m, rocm-smi --showtopo, NCCL XML, hwloc XML, a
matrix, a topology annotation), the name of a shipped machine (see `recordings`), or - for standard
input. Without FILE it is this machine, as nvidia-smi shows it."""
_EXIT_CODES = """\
0 answered; 1 no set fits (best); 2 wrong usage; 3 a file or this machine cannot be read
or understood, or a file not written; 4 drawing without matplotlib."""
_GPUS = "GPU indices, such as 0,3,5 or 0-3,6."
_WISHES = {key.name: f"{key.summary} As {key.name}." for key in POD_KEYS}


def make_parser() -> Parser:
    """Make the parser; `command` of what it reads names the command."""
    root = program_parser("coterie-topology", _ABOUT, exit_codes=_EXIT_CODES)
    commands = root.add_subparsers(required=True, metavar="COMMAND", dest="command")

    def command(name: str, about: str) -> Parser:
        return add_command(commands, name, about)

    gain = command("gain", "say what Coterie gains here over a plain kubelet and NVIDIA's plugin")
    _add_machine(gain)
    show = command("show", "show GPUs, links, PCIe levels, NICs and unknowns")
    _add_machine(show)
    show.add_argument(
        "--annotation", action="store_true", help="Print the text of the node annotation instead."
    )
    value = command("value", "say what a GPU set is worth, on one node or several, and why")
    _add_machine(value)
    value.add_argument("--gpus", type=_gpus("--gpus"), metavar="GPUS", help=_GPUS)
    value.add_argument(
        "--node",
        type=_node,
        action="append",
        metavar="FILE:GPUS",
        help="Instead, for each node of a set over several: its FILE and its GPUs. Repeatable.",
    )
    _add_best(command("best", "choose the best free set, name the next one and what decided"))
    rank = command("rank", "list the sets of a size, best first, equal ones in one row")
    _add_machine(rank)
    _add_size(rank)
    rank.add_argument("--all", action="store_true", help="List every set, each in a row.")
    rank.add_argument(
        "--limit",
        type=_count("--limit"),
        metavar="ROWS",
        help="Rows to list (default 10; all with --all and with --json, whose rows are sets).",
    )
    _add_draw(command("draw", "draw a machine with GPU sets in colour"))
    recordings = command("recordings", "list the shipped machines that FILE may name")
    for one in (gain, show, value, rank, recordings):
        _add_json(one)
    _add_audit(command("audit", "say what a running cluster loses, from lists of nodes and pods"))
    root.offers = lambda name, _: recording_names() if name == "file" else ()
    add_completion_command(commands, root.prog)
    return root


def _add_best(best: Parser) -> None:
    _add_machine(best)
    _add_size(best)
    best.add_argument(
        "--free",
        type=_gpus("--free"),
        metavar="GPUS",
        help=f"Free GPUs, all where not given. {_GPUS}",
    )
    best.add_argument(
        "--must-include",
        type=_gpus("--must-include"),
        default=(),
        metavar="GPUS",
        help=f"GPUs that the set must hold. {_GPUS}",
    )
    _add_choice(best, "--affinity", Affinity, Affinity.ANY, _WISHES[pod_keys.AFFINITY])
    _add_choice(best, "--policy", Strength, Strength.PREFERRED, _WISHES[pod_keys.POLICY])
    best.add_argument(
        "--min-bandwidth",
        type=_bandwidth("--min-bandwidth"),
        metavar="GB/s",
        help=_WISHES[pod_keys.MIN_BANDWIDTH],
    )
    _add_choice(best, "--nic", NicRule, NicRule.UNSET, _WISHES[pod_keys.NIC])
    _add_json(best)


def _add_draw(draw: Parser) -> None:
    _add_machine(draw, is_measured=False)
    draw.add_argument(
        "--output",
        "-o",
        required=True,
        metavar="PATH",
        help="Where to write: .svg or .png; - for SVG on standard output.",
    )
    draw.add_argument(
        "--gpus",
        type=_gpus("--gpus"),
        action="append",
        default=[],
        metavar="GPUS",
        help=f"A set to colour, repeatable. {_GPUS}",
    )
    draw.add_argument("--title", metavar="TEXT", help="Heading of the picture.")


def _add_audit(audit: Parser) -> None:
    for option, command in (("--nodes", "kubectl get nodes"), ("--pods", "kubectl get pods -A")):
        audit.add_argument(
            option, required=True, metavar="FILE", help=f"What `{command} -o json` prints, or -."
        )
    about = "Form of the answer."
    _add_choice(audit, "--output", AuditForm, AuditForm.TEXT, about, short="-o")


def _add_machine(parser: Parser, *, is_measured: bool = True) -> None:
    parser.add_argument(
        "file", nargs="?", metavar="FILE", help="A recording, a shipped machine's name, or -."
    )
    parser.add_argument(
        "--gpu-model", metavar="MODEL", help="GPU model, where the file names none."
    )
    about = "Read FILE as this instead of detecting it."
    _add_choice(parser, "--format", FileFormat, None, about)
    if is_measured:
        about = "Measured bandwidths of this very node."
        parser.add_argument("--measured", metavar="FILE", help=about)


def _add_size(parser: Parser) -> None:
    parser.add_argument(
        "--size", type=_count("--size"), required=True, metavar="N", help="Number of GPUs."
    )


def _add_json(parser: Parser) -> None:
    parser.add_argument(
        "--json", action="store_true", help="Print JSON (docs/schemas) for programs."
    )


def _add_choice(  # noqa: PLR0913 - what an option is
    parser: Parser,
    option: str,
    choices: type[E],
    default: E | None,
    about: str,
    *,
    short: str | None = None,
) -> None:
    words = [str(one.value) for one in choices]

    def read(text: str) -> E:
        if text in words:
            return choices(text)
        hint = nearest(text, words)
        msg = f"{option} is {quote(text)}, expected one of {', '.join(words)}{hint}"
        raise InvalidRequest(msg)

    shown = "" if default is None else f" (default {default.value})"
    names = [option] if short is None else [option, short]
    parser.add_argument(
        *names, type=read, default=default, metavar="|".join(words), help=f"{about}{shown}"
    )


def _gpus(option: str) -> Callable[[str], tuple[int, ...]]:
    return lambda text: read_gpus(text, option)


def _node(text: str) -> tuple[str, tuple[int, ...]]:
    file, _, gpus = text.rpartition(":")
    if not file:
        msg = f"--node is {quote(text)}, expected FILE:GPUS such as dgx-h100:0-3"
        raise InvalidRequest(msg)
    return file, read_gpus(gpus, "--node")


def _count(option: str) -> Callable[[str], int]:
    def read(text: str) -> int:
        if text.isascii() and text.isdigit() and len(text) < 10 and int(text):  # noqa: PLR2004 - digits of 2^31
            return int(text)
        msg = f"{option} is {quote(text)}, expected a whole number of 1 or more"
        raise InvalidRequest(msg)

    return read


def _bandwidth(option: str) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            figure = float(text)
        except ValueError:
            figure = math.nan
        if 0 < figure < math.inf:
            return figure
        msg = f"{option} is {quote(text)}, expected a number of GB/s above 0"
        raise InvalidRequest(msg)

    return read
