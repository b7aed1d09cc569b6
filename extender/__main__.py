"""The extender's command line: the one place where its objects are wired together.

`serve` answers kube-scheduler over an embedded cluster until SIGTERM; `replay FILE` checks a
decision log; `explain FILE` tells how a pod would be placed on the cluster while it is empty.

Exit codes: 0 done; 1 a replay differed, or the pod fits nowhere; 2 bad settings, files or
arguments.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import socket
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, NoReturn

import structlog
import typer
import uvicorn

from extender import logkeys
from extender.app import Dependencies, create_app
from extender.decisions import DecisionLog, make_engine, replay
from extender.documents import as_json, read_yaml
from extender.engine import Outcome, Verb
from extender.errors import DocumentError, ExtenderError, SettingsError
from extender.metrics import Metrics
from extender.settings import CONFIG_VARIABLE, Settings, load_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from extender.app import Logger

GC_THRESHOLDS = (50_000, 50, 1_000)
"""A request makes thousands of short-lived objects and no cycles, so collecting often is work for
nothing: start-up state is frozen and what comes later is collected rarely. Measured at 5,000 nodes
on one connection: prioritize 2.0 ms (p99 3.2) of processor time, 2.6 ms (p99 4.7) with Python's
defaults."""

cli = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)

Config = Annotated[
    Path | None,
    typer.Option("--config", envvar=CONFIG_VARIABLE, help="Settings file (YAML)."),
]


@cli.command()
def serve(  # noqa: PLR0913 - one flag for each setting
    *,
    config: Config = None,
    cluster: Annotated[str | None, typer.Option(help="Machines and counts, or a file.")] = None,
    listen_address: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    listen_port: Annotated[int | None, typer.Option(help="TCP port; 0 takes a free one.")] = None,
    resources: Annotated[str | None, typer.Option(help="Extended resources placed.")] = None,
    candidate_limit: Annotated[int | None, typer.Option(help="Most nodes filter names.")] = None,
    demand: Annotated[str | None, typer.Option(help="Set sizes expected to come.")] = None,
    loss_bounds: Annotated[str | None, typer.Option(help="Bounds of the loss classes.")] = None,
    staleness_bound_s: Annotated[float | None, typer.Option(help="Seconds.")] = None,
    assume_s: Annotated[float | None, typer.Option(help="Seconds.")] = None,
    keep_alive_s: Annotated[int | None, typer.Option(help="Seconds.")] = None,
    body_limit_bytes: Annotated[int | None, typer.Option(help="Bytes.")] = None,
    decision_log: Annotated[Path | None, typer.Option(help="File of decisions.")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
) -> None:
    """Answer kube-scheduler until SIGTERM. docs/configuration.md explains each setting."""
    flags = {name: value for name, value in locals().items() if name in Settings.model_fields}
    settings = _settings(flags, config)
    with ExitStack() as stack:
        _serve(settings, stack)


@cli.command(name="replay")
def replay_log(
    file: Annotated[Path, typer.Argument(help="A decision log.", exists=True, dir_okay=False)],
) -> None:
    """Answer every recorded call again and compare byte for byte."""
    try:
        with file.open(encoding="utf-8") as lines:
            found = replay(lines)
    except (ExtenderError, OSError, UnicodeDecodeError) as error:
        _fail(f"{file}: {error}")
    for line in found.cut:
        typer.echo(f"line {line} is cut off, as by a crash: its run ends there")
    if found.difference is None:
        typer.echo(f"{found.n_calls} calls, all answered as recorded")
        return
    first = found.difference
    typer.echo(f"line {first.line}: {first.what} differs after {found.n_calls} calls")
    typer.echo(f"recorded: {first.recorded}")
    typer.echo(f"replayed: {first.replayed}")
    raise typer.Exit(1)


@cli.command()
def explain(
    file: Annotated[Path, typer.Argument(help="A pod, YAML or JSON.", exists=True, dir_okay=False)],
    *,
    config: Config = None,
    cluster: Annotated[str | None, typer.Option(help="Machines and counts, or a file.")] = None,
) -> None:
    """Tell how the pod would be placed on the cluster while it is empty, as JSON."""
    settings = _settings({"cluster": cluster}, config)
    try:
        body = as_json(read_yaml(file.read_text(encoding="utf-8"))).encode()
    except (OSError, ValueError, DocumentError) as error:
        _fail(f"pod file {file} cannot be read: {error}")
    try:
        engine = make_engine(settings.cluster_spec(), settings.rules)
    except ExtenderError as error:
        _fail(str(error))
    answer = engine.answer(Verb.EXPLAIN, body, time.time())
    if answer.outcome is Outcome.FAILED:
        _fail(answer.detail)
    told: dict[str, Any] = json.loads(answer.body)
    typer.echo(json.dumps(told, indent=2))
    if told["nodes"] and not any(node["fits"] for node in told["nodes"]):
        raise typer.Exit(1)


def main() -> None:
    """Run the command line."""
    cli()


def _settings(flags: Mapping[str, object], config: Path | None) -> Settings:
    try:
        return load_settings({k: v for k, v in flags.items() if v is not None}, config)
    except ExtenderError as error:
        _fail(str(error))


def _serve(settings: Settings, stack: ExitStack) -> None:
    log = _logger(settings.log_level)
    log.info(logkeys.EFFECTIVE_SETTINGS, **settings.model_dump(mode="json"))
    try:
        spec = settings.cluster_spec()
        engine = make_engine(spec, settings.rules)
        listener = stack.enter_context(_listen(settings.listen_address, settings.listen_port))
        decision_log = None
        if settings.decision_log is not None:
            file = stack.enter_context(_open_log(settings.decision_log))
            decision_log = DecisionLog(file, spec, engine)
    except ExtenderError as error:
        _fail(str(error))
    app = create_app(
        Dependencies(
            engine=engine,
            metrics=Metrics(engine),
            log=log,
            clock=time.time,
            timer=time.perf_counter,
            body_limit_bytes=settings.body_limit_bytes,
            decision_log=decision_log,
        )
    )
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            access_log=False,
            lifespan="off",
            log_config=None,
            server_header=False,
            timeout_keep_alive=settings.keep_alive_s,
            timeout_graceful_shutdown=5,
        )
    )
    address, port = listener.getsockname()[:2]
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    # uvicorn shuts down on these signals and then raises them again for whoever came before it.
    for number in (signal.SIGTERM, signal.SIGINT):
        stack.callback(signal.signal, number, signal.signal(number, _ignore))
    log.info(logkeys.READY, address=address, port=port, n_nodes=len(engine.cluster.snapshot.nodes))
    server.run(sockets=[listener])
    log.info(logkeys.STOPPED)


def _ignore(_number: int, _frame: object) -> None:
    """Let `serve` come to its end after uvicorn has shut down."""


def _listen(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, port), family=family, backlog=128)
    except OSError as error:
        msg = f"setting listen_address {address}, listen_port {port}: cannot listen there: {error}"
        raise SettingsError(msg) from error


def _open_log(path: Path) -> IO[str]:
    """Open for appending; what a crash left half written stays on a line of its own."""
    try:
        is_cut = path.is_file() and not _ends_a_line(path)
        file = path.open("a", encoding="utf-8")
    except OSError as error:
        msg = f"setting decision_log {path}: cannot be written: {error}"
        raise SettingsError(msg) from error
    if is_cut:
        file.write("\n")
    return file


def _ends_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return True
        file.seek(-1, os.SEEK_END)
        return file.read() == b"\n"


def _logger(level: str) -> Logger:
    """JSON lines on standard error, through nothing that could block on a handler's lock."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
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


def _fail(message: str) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(2)


if __name__ == "__main__":
    main()
