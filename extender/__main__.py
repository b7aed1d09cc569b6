"""The extender's command line, and the one place where its objects are wired together.

`serve` answers kube-scheduler until SIGTERM, over a real cluster or an embedded one; `replay FILE`
checks a decision log; `explain` tells how a pod would be placed: a file on an embedded cluster that
is empty, or a pod of a running extender's cluster.

Exit codes: 0 done; 1 a replay differed, the pod fits nowhere, or the extender failed; 2 bad
settings, files or arguments.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, NoReturn
from urllib.parse import quote

import structlog
import typer
import uvloop

from extender import logkeys, wiring
from extender.config import CONFIG_VARIABLE, Settings, load_settings
from extender.decision_log.replay import replay
from extender.embedded import make_engine
from extender.errors import ExtenderError, SettingsError
from extender.http.client import ask
from extender.protocol import Outcome, Verb
from kube.documents import as_json, read_yaml
from kube.errors import DocumentError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from extender.log import Logger

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
    kubeconfig: Annotated[Path | None, typer.Option(help="Of the API server.")] = None,
    listen_address: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    listen_port: Annotated[int | None, typer.Option(help="TCP port; 0 takes a free one.")] = None,
    resources: Annotated[str | None, typer.Option(help="Extended resources placed.")] = None,
    candidate_limit: Annotated[int | None, typer.Option(help="Most nodes filter names.")] = None,
    demand: Annotated[str | None, typer.Option(help="Set sizes expected to come.")] = None,
    loss_bounds: Annotated[str | None, typer.Option(help="Bounds of the loss classes.")] = None,
    staleness_bound_s: Annotated[float | None, typer.Option(help="Seconds.")] = None,
    http_timeout_s: Annotated[float | None, typer.Option(help="Seconds.")] = None,
    wake_after_s: Annotated[float | None, typer.Option(help="Seconds.")] = None,
    events: Annotated[str | None, typer.Option(help="off, warnings or all.")] = None,
    assume_s: Annotated[float | None, typer.Option(help="Seconds.")] = None,
    keep_alive_s: Annotated[int | None, typer.Option(help="Seconds.")] = None,
    body_limit_bytes: Annotated[int | None, typer.Option(help="Bytes.")] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Server certificate, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its private key, PEM.")] = None,
    tls_client_ca: Annotated[Path | None, typer.Option(help="Whose clients may call.")] = None,
    health_port: Annotated[int | None, typer.Option(help="TCP port of plain health.")] = None,
    lease: Annotated[str | None, typer.Option(help="namespace/name, with replicas.")] = None,
    lease_duration_s: Annotated[int | None, typer.Option(help="Seconds.")] = None,
    replica_url: Annotated[str | None, typer.Option(help="Where replicas reach this one.")] = None,
    peer_name: Annotated[str | None, typer.Option(help="Name in replicas' certificates.")] = None,
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
def explain(  # noqa: PLR0913 - one flag for each
    pod: Annotated[str, typer.Argument(help="A pod: YAML or JSON file, or NAMESPACE/NAME.")],
    *,
    config: Config = None,
    cluster: Annotated[str | None, typer.Option(help="Machines and counts, or a file.")] = None,
    url: Annotated[str | None, typer.Option(help="Ask a running extender about a pod.")] = None,
    ca: Annotated[Path | None, typer.Option(help="For https: who signs its certificate.")] = None,
    cert: Annotated[Path | None, typer.Option(help="For https: your certificate, PEM.")] = None,
    key: Annotated[Path | None, typer.Option(help="For https: its private key, PEM.")] = None,
    name: Annotated[str | None, typer.Option(help="For https: name in its certificate.")] = None,
) -> None:
    """Tell how the pod would be placed, as JSON.

    Without --url the pod is a file, and the cluster an embedded one while it is empty. An https
    URL needs --ca, --cert and --key, or the settings tls_cert, tls_key and tls_client_ca, as they
    are in the extender's own pod.
    """
    given = {"tls_client_ca": ca, "tls_cert": cert, "tls_key": key, "peer_name": name}
    told = (
        _ask(url, pod, config, given)
        if url is not None
        else _explain_file(Path(pod), cluster, config)
    )
    typer.echo(json.dumps(told, indent=2))
    nodes = told.get("nodes")
    if nodes and not any(node["fits"] for node in nodes):
        raise typer.Exit(1)


def main() -> None:
    """Run the command line."""
    cli()


def _settings(flags: Mapping[str, object], config: Path | None) -> Settings:
    try:
        return load_settings({k: v for k, v in flags.items() if v is not None}, config)
    except ExtenderError as error:
        _fail(str(error))


def _explain_file(file: Path, cluster: str | None, config: Path | None) -> dict[str, Any]:
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
    return told


def _ask(url: str, pod: str, config: Path | None, given: Mapping[str, object]) -> dict[str, Any]:
    namespace, slash, name = pod.partition("/")
    if not (namespace and slash and name):
        _fail(f"pod {pod} of a cluster, expected NAMESPACE/NAME")
    settings = _settings(given, config)
    try:
        certificates = wiring.make_certificates(settings)
        tls = None if certificates is None else certificates.client
        return ask(
            url, f"/explain/{quote(namespace)}/{quote(name)}", tls=tls, name=settings.peer_name
        )
    except ExtenderError as error:
        _fail(str(error))


def _serve(settings: Settings, stack: ExitStack) -> None:
    log = _logger(settings.log_level)
    log.info(logkeys.EFFECTIVE_SETTINGS, **settings.model_dump(mode="json"))
    try:
        sockets = wiring.open_sockets(settings)
        stack.callback(sockets.close)
        file = None
        if settings.decision_log is not None:
            file = stack.enter_context(_open_log(settings.decision_log))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(wiring.serve(settings, sockets, file, log))
    except ExtenderError as error:
        _fail(str(error))
    log.info(logkeys.STOPPED)


def _open_log(path: Path) -> IO[str]:
    """Open for appending; what a crash left half written stays on a line of its own."""
    try:
        is_cut = path.is_file() and not _ends_a_line(path)
        # It holds the names and annotations of everybody's pods.
        file = open(path, "a", encoding="utf-8", opener=_open_private)  # noqa: SIM115 - Path.open has no opener
    except OSError as error:
        msg = f"setting decision_log {path}: cannot be written: {error}"
        raise SettingsError(msg) from error
    if is_cut:
        file.write("\n")
    return file


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, mode=0o600)


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
