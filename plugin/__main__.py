"""The node plugin's command line, and the one place where its process is set up.

`run` serves this machine's GPUs to the kubelet and publishes them, until SIGTERM; SIGHUP has it
begin anew. `discover` tells what it reads of this machine. `measure` runs a benchmark for each pair
of GPUs and writes the file that the setting `measurements` names.

Exit codes: 0 done; 1 the machine cannot be read, or the plugin failed; 2 bad settings, files or
arguments.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Mapping  # noqa: TC003 - the options are made from the signature
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from plugin import logkeys
from plugin.config import go_booleans, takes_settings
from plugin.config.load_settings import load_settings
from plugin.errors import MeasurementError, PluginError, ReadingError, SettingsError
from plugin.measure import DEFAULT_COMMAND, DEFAULT_MESSAGE_BYTES, Benchmark, all_pairs, measure
from plugin.memory import import_without
from plugin.wiring import Running, open_reader, read_machine, run_agents
from topology.model import write_measurement

if TYPE_CHECKING:
    from plugin.config import LoadedSettings
    from plugin.machine import MachineReading
    from plugin.observe import Logger

cli = typer.Typer(
    add_completion=False, no_args_is_help=True, help=__doc__, pretty_exceptions_enable=False
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Out = Annotated[Path, typer.Option("--out", help="File to write.", dir_okay=False)]


@cli.command()
@takes_settings
def run(flags: Mapping[str, object]) -> None:
    """Serve this machine to the kubelet, or report it, until SIGTERM (docs/plugin.md)."""
    loaded = _load(flags)
    log = _logger(loaded.settings.log_level)
    try:
        asyncio.run(_run(flags, log))
    except SettingsError as error:
        _fail(str(error), 2)
    except PluginError as error:
        _fail(str(error), 1)
    log.info(logkeys.STOPPED)


@cli.command()
@takes_settings
def discover(flags: Mapping[str, object], *, json: Json = False) -> None:
    """Tell what is read of this machine: GPUs, links, NICs, and what could not be read."""
    from plugin.observe import reading_text  # noqa: PLC0415 - only here, the agent's memory is counted
    from plugin.observe.reading_json import reading_json  # noqa: PLC0415 - as above

    reading = _read(_load_here(flags))
    typer.echo(reading_json(reading) if json else reading_text(reading))


@cli.command(name="measure")
@takes_settings
def measure_pairs(  # noqa: PLR0913 - one for each option
    flags: Mapping[str, object],
    *,
    out: Out,
    command: Annotated[
        str,
        typer.Option(help="The benchmark; {n} is the number of GPUs, {bytes} the message size."),
    ] = DEFAULT_COMMAND,
    message_bytes: Annotated[
        int, typer.Option(min=1, help="Message size in bytes.")
    ] = DEFAULT_MESSAGE_BYTES,
    timeout_s: Annotated[
        float, typer.Option(min=0.1, help="Seconds that one run may take.")
    ] = Benchmark().timeout_s,
    whole: Annotated[bool, typer.Option("--whole", help="Measure all GPUs together too.")] = False,
) -> None:
    """Run an all-reduce benchmark on each pair of GPUs and write what it measured.

    The node must be idle: whatever else runs is measured too.
    """
    from rich.console import Console  # noqa: PLC0415 - only here, and the agent's memory is counted
    from rich.progress import Progress  # noqa: PLC0415 - as above

    reading = _read(_load_here(flags))
    uuids = [gpu.uuid for gpu in reading.gpus]
    sets = [*all_pairs(len(uuids)), *([tuple(range(len(uuids)))] if whole else [])]
    if not all_pairs(len(uuids)):
        _fail(f"this machine has {len(uuids)} GPU, expected two at least", 1)
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("measuring", total=len(sets))

        def advance(gpus: tuple[int, ...], gbytes_per_s: float) -> None:
            figure = f"{','.join(map(str, gpus))}: {gbytes_per_s:.1f} GB/s"
            progress.update(task, advance=1, description=figure)

        try:
            found = measure(
                uuids,
                sets,
                benchmark=Benchmark(command, message_bytes, timeout_s),
                date=datetime.now(UTC).date().isoformat(),
                advance=advance,
            )
        except MeasurementError as error:
            _fail(str(error), 1)
    text = write_measurement(found)
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        typer.echo(text, nl=False)  # it may have taken hours
        _fail(f"file {out} cannot be written, see standard output: {error.strerror}", 2)
    typer.echo(f"{len(found.pairs)} pairs measured, written to {out}")


def main() -> None:
    """Run the command line."""
    cli(args=go_booleans(sys.argv[1:]))


async def _run(flags: Mapping[str, object], log: Logger) -> None:
    running = Running()
    loop = asyncio.get_running_loop()
    work = asyncio.ensure_future(run_agents(lambda: load_settings(flags), running=running, log=log))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, work.cancel)
    loop.add_signal_handler(signal.SIGHUP, running.reload)
    with suppress(asyncio.CancelledError):
        await work


def _load(flags: Mapping[str, object]) -> LoadedSettings:
    try:
        return load_settings(flags)
    except SettingsError as error:
        _fail(str(error), 2)


def _load_here(flags: Mapping[str, object]) -> LoadedSettings:
    """A simulated machine takes its ids from the node's name; without one any will do to look."""
    loaded = _load(flags)
    return loaded if loaded.settings.node_name else _load({**flags, "node_name": "here"})


def _read(loaded: LoadedSettings) -> MachineReading:
    try:
        with closing(open_reader(loaded.settings)) as reader:
            return read_machine(reader, loaded.settings)
    except ReadingError as error:
        _fail(str(error), 1)


def _logger(level: str) -> Logger:
    """JSON lines on standard error."""
    with import_without("rich"):  # it would colour tracebacks for people
        import structlog  # noqa: PLC0415 - as above

    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logger: Logger = structlog.get_logger()
    return logger


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(code)


if __name__ == "__main__":
    main()
