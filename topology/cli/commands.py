"""`coterie-topology`: what a node's recording shows, what a GPU set is worth, which set is best.

It decides nothing itself: it reads files, calls `topology.report.compute` and prints; the same
figures place pods.

Errors are one sentence on stderr, with an exit code (`ExitCode`, explained in the help). Manual:
docs/cli.md.
"""

from __future__ import annotations

import math
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from topology.annotations import POD_KEYS, Affinity, NicRule, PlacementPolicy, Strength, pod_keys
from topology.cli.printing import print_report
from topology.cli.program import version
from topology.cli.reading import read_gpus, read_machine
from topology.errors import CodecError, ImportFormatError, InvalidRequest, TopologyError, quote
from topology.importers import FileFormat
from topology.model import encode_topology
from topology.printable import printable
from topology.recordings import load_recording, recording_names
from topology.report.compute import (
    BestQuery,
    report_best,
    report_rank,
    report_recordings,
    report_show,
    report_value,
)
from topology.report.listing import (
    list_best,
    list_rank,
    list_recordings,
    list_show,
    list_value,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

__all__ = ["app", "main"]


class ExitCode(int, Enum):
    """What the program's exit says."""

    ANSWERED = 0
    NO_SET_FITS = 1
    USAGE = 2
    FILE = 3
    NO_MATPLOTLIB = 4


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"coterie-topology {version()}")
        raise typer.Exit


app = typer.Typer(
    name="coterie-topology",
    help=(
        "Ask about a machine: its links, what a GPU set is worth, which set is best. FILE is a "
        "recording of any format (nvidia-smi topo -m, rocm-smi --showtopo, NCCL XML, hwloc XML, a "
        "matrix, a topology annotation), the name of a shipped machine (see `recordings`), or - "
        "for standard input."
    ),
    epilog=(
        "Exit codes: 0 answered; 1 no set fits (best); 2 wrong usage; 3 a file cannot be read, "
        "understood or written; 4 drawing without matplotlib."
    ),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

FileArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="A recording, a shipped machine's name, or -.")
]
ModelOption = Annotated[
    str | None, typer.Option("--gpu-model", help="GPU model, where the file names none.")
]
FormatOption = Annotated[
    FileFormat | None, typer.Option("--format", help="Read FILE as this instead of detecting it.")
]
MeasuredOption = Annotated[
    str | None,
    typer.Option("--measured", metavar="FILE", help="Measured bandwidths of this very node."),
]
VersionOption = Annotated[
    bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON (docs/schemas) for programs.")]
SizeOption = Annotated[int, typer.Option("--size", min=1, help="Number of GPUs.")]
GPUS = "GPU indices, such as 0,3,5 or 0-3,6."
_WISHES = {key.name: f"{key.summary} As {key.name}." for key in POD_KEYS}


@app.callback()
def program(*, is_version: VersionOption = False) -> None:
    """Take the options that stand before a command."""
    del is_version  # shown as soon as it is read


@app.command()
def show(  # noqa: PLR0913 - a parameter for each option
    file: FileArgument,
    *,
    gpu_model: ModelOption = None,
    file_format: FormatOption = None,
    measured: MeasuredOption = None,
    annotation: Annotated[
        bool, typer.Option("--annotation", help="Print the text of the node annotation instead.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show GPUs, links, PCIe levels, NICs and unknowns."""
    if annotation and as_json:
        msg = "--annotation and --json exclude each other, expected one"
        raise InvalidRequest(msg)
    topology = read_machine(file, gpu_model, file_format, measured)
    if annotation:
        typer.echo(encode_topology(topology))
        return
    report = report_show(topology)
    print_report(report, list_show(report), as_json=as_json)


@app.command()
def value(  # noqa: PLR0913 - a parameter for each option
    file: FileArgument,
    *,
    gpus: Annotated[str, typer.Option("--gpus", help=GPUS)],
    gpu_model: ModelOption = None,
    file_format: FormatOption = None,
    measured: MeasuredOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what one GPU set is worth and what limits it."""
    members = read_gpus(gpus, "--gpus")
    report = report_value(read_machine(file, gpu_model, file_format, measured), members)
    print_report(report, list_value(report), as_json=as_json)


@app.command()
def best(  # noqa: PLR0913 - a parameter for each option
    file: FileArgument,
    *,
    size: SizeOption,
    free: Annotated[
        str | None, typer.Option("--free", help=f"Free GPUs, all where not given. {GPUS}")
    ] = None,
    must_include: Annotated[
        str | None, typer.Option("--must-include", help=f"GPUs that the set must hold. {GPUS}")
    ] = None,
    affinity: Annotated[
        Affinity, typer.Option("--affinity", help=_WISHES[pod_keys.AFFINITY])
    ] = Affinity.ANY,
    policy: Annotated[
        Strength, typer.Option("--policy", help=_WISHES[pod_keys.POLICY])
    ] = Strength.PREFERRED,
    min_bandwidth: Annotated[
        float | None,
        typer.Option("--min-bandwidth", help=_WISHES[pod_keys.MIN_BANDWIDTH]),
    ] = None,
    nic: Annotated[NicRule, typer.Option("--nic", help=_WISHES[pod_keys.NIC])] = NicRule.UNSET,
    gpu_model: ModelOption = None,
    file_format: FormatOption = None,
    measured: MeasuredOption = None,
    as_json: JsonOption = False,
) -> None:
    """Choose the best free set; exits 1 where none fits."""
    if min_bandwidth is not None and not 0 < min_bandwidth < math.inf:
        msg = f"--min-bandwidth is {min_bandwidth:g}, expected a number of GB/s above 0"
        raise InvalidRequest(msg)
    question = BestQuery(
        size=size,
        free=None if free is None else read_gpus(free, "--free"),
        must_include=() if must_include is None else read_gpus(must_include, "--must-include"),
        policy=PlacementPolicy(
            affinity=affinity,
            strength=policy,
            min_bandwidth_gbytes_per_s=min_bandwidth,
            nic=nic,
        ),
    )
    report = report_best(read_machine(file, gpu_model, file_format, measured), question)
    print_report(report, list_best(report), as_json=as_json)
    if report.selected is None:
        raise typer.Exit(ExitCode.NO_SET_FITS)


@app.command()
def rank(  # noqa: PLR0913 - a parameter for each option
    file: FileArgument,
    *,
    size: SizeOption,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="List only the best of them.")
    ] = None,
    gpu_model: ModelOption = None,
    file_format: FormatOption = None,
    measured: MeasuredOption = None,
    as_json: JsonOption = False,
) -> None:
    """List every set of a size, best first."""
    report = report_rank(read_machine(file, gpu_model, file_format, measured), size, limit=limit)
    print_report(report, list_rank(report), as_json=as_json)


@app.command()
def draw(  # noqa: PLR0913 - a parameter for each option
    file: FileArgument,
    *,
    output: Annotated[str, typer.Option("--output", "-o", help="Where to write: .svg or .png.")],
    gpus: Annotated[
        list[str] | None, typer.Option("--gpus", help=f"A set to colour, repeatable. {GPUS}")
    ] = None,
    title: Annotated[str | None, typer.Option("--title", help="Heading of the picture.")] = None,
    gpu_model: ModelOption = None,
    file_format: FormatOption = None,
) -> None:
    """Draw a machine with GPU sets in colour."""
    target = Path(output)
    if target.suffix.lower() not in {".svg", ".png"}:
        msg = f"--output is {quote(output)}, expected a name in .svg or .png"
        raise InvalidRequest(msg)
    chosen = [(f"set {k}", read_gpus(text, "--gpus")) for k, text in enumerate(gpus or [], start=1)]
    topology = read_machine(file, gpu_model, file_format)
    try:
        import topology.draw.render as drawing  # noqa: PLC0415 - needs matplotlib
    except ImportError as error:
        _exit(str(error), ExitCode.NO_MATPLOTLIB)
    try:
        if target.suffix.lower() == ".png":
            drawing.save_png(topology, target, sets=chosen, title=title)
        else:
            svg = drawing.draw_topology(topology, sets=chosen, title=title)
            target.write_text(svg, encoding="utf-8")
    except OSError as error:
        _exit(f"{quote(output)} cannot be written: {error.strerror}", ExitCode.FILE)


@app.command()
def recordings(*, as_json: JsonOption = False) -> None:
    """List the shipped machines that FILE may name."""
    report = report_recordings({name: load_recording(name) for name in recording_names()})
    print_report(report, list_recordings(report), as_json=as_json)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program and leave it with its exit code, by `SystemExit`."""
    try:
        app(args=None if arguments is None else list(arguments), prog_name="coterie-topology")
    except (ImportFormatError, CodecError) as error:
        _exit(str(error), ExitCode.FILE)
    except TopologyError as error:
        _exit(str(error), ExitCode.USAGE)


def _exit(message: str, code: ExitCode) -> NoReturn:
    typer.echo(f"error: {printable(message)}", err=True)
    sys.exit(code)
