"""`coterie-topology`: what a node's recording shows, what a GPU set is worth, which set is best.

It decides nothing itself: it reads files, calls `topology.report.compute` and prints; the same
figures place pods.

Exit codes: 0 answered; 1 no set fits (`best`); 2 wrong usage, also a GPU or size that the machine
does not have; 3 a file that cannot be read, understood or written; 4 drawing without matplotlib.
Errors are one sentence on stderr. Manual: docs/cli.md.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from topology.annotations import POD_KEYS, Affinity, NicRule, PlacementPolicy, Strength, pod_keys
from topology.errors import (
    CodecError,
    ImportFormatError,
    InvalidRequest,
    InvalidTopology,
    TopologyError,
    quote,
)
from topology.importers import FileFormat, import_text
from topology.model import encode_topology, parse_measurement
from topology.printable import printable
from topology.program import version
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
    Grid,
    NoteLine,
    list_best,
    list_rank,
    list_recordings,
    list_show,
    list_value,
)
from topology.value import MAX_TABLE_GPUS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

    from topology.model import NodeTopology
    from topology.report.listing import Block
    from topology.report.values import (
        BestReport,
        RankReport,
        RecordingsReport,
        ShowReport,
        ValueReport,
    )

    Report = ShowReport | ValueReport | BestReport | RankReport | RecordingsReport

__all__ = ["ExitCode", "app", "main"]

MAX_BYTES = 16 * 1024 * 1024
"""Most that is read of a file: four bytes for each character that an importer accepts."""

MAX_COLUMNS = 10_000
"""Wider than any table: 512 GPUs with their NICs."""

_RANGE = re.compile(r"\s*([0-9]{1,4})(?:-([0-9]{1,4}))?\s*")


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
        _fail("--annotation and --json exclude each other, expected one", ExitCode.USAGE)
    topology = _load(file, gpu_model, file_format, measured)
    if annotation:
        typer.echo(encode_topology(topology))
        return
    report = report_show(topology)
    _print(report, list_show(report), as_json=as_json)


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
    members = _indices(gpus, "--gpus")
    report = report_value(_load(file, gpu_model, file_format, measured), members)
    _print(report, list_value(report), as_json=as_json)


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
    question = BestQuery(
        size=size,
        free=None if free is None else _indices(free, "--free"),
        must_include=() if must_include is None else _indices(must_include, "--must-include"),
        policy=PlacementPolicy(
            affinity=affinity,
            strength=policy,
            min_bandwidth_gbytes_per_s=min_bandwidth,
            nic=nic,
        ),
    )
    report = report_best(_load(file, gpu_model, file_format, measured), question)
    _print(report, list_best(report), as_json=as_json)
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
    report = report_rank(_load(file, gpu_model, file_format, measured), size, limit=limit)
    _print(report, list_rank(report), as_json=as_json)


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
        _fail(f"--output is {quote(output)}, expected a name in .svg or .png", ExitCode.USAGE)
    chosen = [(f"set {k}", _indices(text, "--gpus")) for k, text in enumerate(gpus or [], start=1)]
    topology = _load(file, gpu_model, file_format, None)
    try:
        import topology.draw.render as drawing  # noqa: PLC0415 - needs matplotlib
    except ImportError as error:
        _fail(str(error), ExitCode.NO_MATPLOTLIB)
    try:
        if target.suffix.lower() == ".png":
            drawing.save_png(topology, target, sets=chosen, title=title)
        else:
            svg = drawing.draw_topology(topology, sets=chosen, title=title)
            target.write_text(svg, encoding="utf-8")
    except OSError as error:
        _fail(f"{quote(output)} cannot be written: {error.strerror}", ExitCode.FILE)


@app.command()
def recordings(*, as_json: JsonOption = False) -> None:
    """List the shipped machines that FILE may name."""
    report = report_recordings({name: load_recording(name) for name in recording_names()})
    _print(report, list_recordings(report), as_json=as_json)


# --- Reading -------------------------------------------------------------------------------------


def _load(
    file: str, gpu_model: str | None, file_format: FileFormat | None, measured: str | None
) -> NodeTopology:
    """Read FILE: standard input, an existing file, or a shipped machine; in this order."""
    if file != "-" and not Path(file).exists() and file in recording_names():
        if gpu_model is not None or file_format is not None:
            msg = f"{file} is a shipped machine, expected no --gpu-model and no --format with it"
            raise InvalidRequest(msg)
        topology = load_recording(file)
    else:
        topology = import_text(_read(file), gpu_model=gpu_model, file_format=file_format)
        if topology.name is None and file != "-":
            topology = replace(topology, name=printable(Path(file).stem) or None)
    if measured is None:
        return topology
    if topology.n_gpus > MAX_TABLE_GPUS:
        msg = (
            f"--measured with {topology.n_gpus} GPUs, expected at most {MAX_TABLE_GPUS}: "
            "measurements do not enter the value of bigger nodes"
        )
        raise InvalidRequest(msg)
    try:
        return replace(topology, measurement=parse_measurement(_read(measured)))
    except InvalidTopology as error:
        _fail(f"{quote(measured)}: {error}", ExitCode.FILE)


def _read(file: str) -> str:
    try:
        if file == "-":
            raw = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(file).open("rb") as source:
                raw = source.read(MAX_BYTES + 1)
    except FileNotFoundError:
        _fail(
            f"{quote(file)} is neither a file nor a shipped machine (see `recordings`)",
            ExitCode.FILE,
        )
    except (OSError, ValueError) as error:
        _fail(f"{quote(file)} cannot be read: {error}", ExitCode.FILE)
    if len(raw) > MAX_BYTES:
        _fail(f"{quote(file)} has more than {MAX_BYTES} bytes, expected a recording", ExitCode.FILE)
    return raw.decode("utf-8-sig", errors="replace")


def _indices(text: str, option: str) -> tuple[int, ...]:
    """Read `0,3,5` or `0-3,6`; the node checks which GPUs it has."""
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            _fail(
                f"{option} is {quote(text)}, expected GPU indices such as 0,3,5 or 0-3,6",
                ExitCode.USAGE,
            )
        low, high = int(match[1]), int(match[2] or match[1])
        if low > high:
            _fail(f"{option} has {quote(part)}, expected the lower index first", ExitCode.USAGE)
        found.update(range(low, high + 1))
    return tuple(sorted(found))


# --- Printing ------------------------------------------------------------------------------------


def _print(report: Report, blocks: Sequence[Block], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(asdict(report), indent=2))
        return
    # Tables are never cut to the terminal's width (rich assumes 80 columns in a pipe): a column
    # left out would be a lost fact. The terminal wraps what it cannot hold.
    console = Console(width=MAX_COLUMNS, highlight=False, markup=False, emoji=False)
    with console.capture() as capture:
        for k, block in enumerate(blocks):
            if isinstance(block, NoteLine):
                style = "bold" if block.is_heading else ""
                lead = "\n" if block.is_heading and k else ""
                console.print(Text(lead + block.text, style=style))
            else:
                console.print(_table(block))
    for line in capture.get().splitlines():
        typer.echo(line.rstrip())


def _table(grid: Grid) -> Table:
    table = Table(box=None, show_header=any(grid.columns), pad_edge=False, header_style="dim")
    for k, heading in enumerate(grid.columns):
        table.add_column(heading, justify="right" if k in grid.right_aligned else "left")
    for row in grid.rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def _fail(message: str, code: ExitCode) -> NoReturn:
    typer.echo(f"error: {printable(message)}", err=True)
    raise typer.Exit(code)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program and leave it with its exit code, by `SystemExit`."""
    try:
        app(args=None if arguments is None else list(arguments), prog_name="coterie-topology")
    except (ImportFormatError, CodecError) as error:
        typer.echo(f"error: {printable(str(error))}", err=True)
        sys.exit(ExitCode.FILE)
    except TopologyError as error:
        typer.echo(f"error: {printable(str(error))}", err=True)
        sys.exit(ExitCode.USAGE)
