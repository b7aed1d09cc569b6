"""The extender's command line.

`serve` answers kube-scheduler until SIGTERM, over a real cluster or an embedded one; `replay FILE`
checks a decision log; `explain` shows how a pod would be placed: a file on an empty embedded
cluster, or a pod of a running extender's cluster.

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
from typing import IO, TYPE_CHECKING, Any, cast
from urllib.parse import quote as url_quote

import uvloop

from extender import logkeys, wiring
from extender.config import ExtenderSettings, load_settings
from extender.decision_log.replay import replay
from extender.embedded import node_facts
from extender.engine import make_engine
from extender.errors import ExtenderError
from extender.http.client import get_json
from extender.protocol import Outcome, Verb
from kube.documents import as_json, read_yaml
from kube.errors import DocumentError, SettingsError, Unreadable
from kube.log import json_logger
from kube.objects import devices_of, pinned_reason, pod_of
from kube.settings import add_options, given_settings
from topology.cli.program import (
    Parser,
    add_command,
    add_completion_command,
    fail,
    program_parser,
    reader_may_leave,
)
from topology.errors import file_fault, nearest, quote

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping, Sequence

    from kube.log import Logger

__all__ = ["main"]

_POD = "YAML or JSON file of a pod, or of a Job, Deployment and so on, or NAMESPACE/NAME."
_EXIT_CODES = """\
0 done; 1 a replay differed, the pod fits nowhere, or the extender failed; 2 bad settings,
files or arguments."""
_EXPLAIN = """\
Without --url the pod is a file, and the cluster an embedded one that is empty.

Exit codes: 0 the pod fits on some node, or has one; 1 it fits on none; 2 bad settings, files or
arguments, or a pod that requests no GPU of the extender's."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    given = _parser().parse_args(arguments)
    given.run(given)


def _parser() -> Parser:
    about = "Place GPU pods: the extender of kube-scheduler that chooses node and GPUs."
    parser = program_parser("coterie-extender", about, exit_codes=_EXIT_CODES)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    about = "answer kube-scheduler until SIGTERM; docs/configuration.md explains each setting"
    serve = add_command(commands, "serve", about)
    add_options(serve, ExtenderSettings)
    serve.set_defaults(run=_serve)

    about = "answer every recorded call again and compare byte for byte"
    replaying = add_command(commands, "replay", about)
    replaying.add_argument("file", metavar="FILE", type=Path, help="A decision log.")
    replaying.set_defaults(run=_replay)

    about = "show how a pod would be placed, as JSON"
    explain = add_command(commands, "explain", about, more=_EXPLAIN)
    explain.add_argument("pod", metavar="POD|FILE", help=_POD)
    explain.add_argument(
        "--url", help="Read API of a running extender, as http://127.0.0.1:8890 in its own pod."
    )
    add_options(explain, ExtenderSettings, only={"cluster"})
    explain.set_defaults(run=_explain)
    add_completion_command(commands, parser.prog)
    return parser


def _replay(given: Namespace) -> None:
    try:
        with given.file.open(encoding="utf-8") as lines:
            found = replay(lines)
    except (ExtenderError, OSError, UnicodeDecodeError) as error:
        fail(f"{given.file}: {file_fault(error)}", 2)
    for line in found.cut:
        print(f"line {line} is cut off, as by a crash: its run ends there")
    if found.difference is None:
        print(f"{found.n_calls} calls, all answered as recorded")
        return
    first = found.difference
    print(f"line {first.line}: {first.what} differs after {found.n_calls} calls")
    print(f"recorded: {first.recorded}")
    print(f"replayed: {first.replayed}")
    raise SystemExit(1)


def _explain(given: Namespace) -> None:
    settings = _settings(given_settings(ExtenderSettings, given))
    if given.url is None:
        what, resources = f"pod file {given.pod}", " or ".join(settings.resources)
        answer = _explain_file(Path(given.pod), settings)
    else:
        what, resources = given.pod, "a resource of the extender's setting `resources`"
        answer = _fetch(given)
    if answer.get("request") is None:
        fail(f"{what}: no container requests {resources}: Coterie does not place this pod", 2)
    with reader_may_leave():
        print(json.dumps(answer, indent=2))
    if "bound" not in answer and not any(node["fits"] for node in answer.get("nodes", ())):
        raise SystemExit(1)


def _settings(flags: Mapping[str, object]) -> ExtenderSettings:
    try:
        return load_settings(flags)
    except (ExtenderError, SettingsError) as error:
        fail(str(error), 2)


def _explain_file(file: Path, settings: ExtenderSettings) -> dict[str, Any]:
    try:
        pod: object = pod_of(read_yaml(file.read_text(encoding="utf-8")))
        is_object = isinstance(pod, dict)
        pinned = pinned_reason(cast("dict[str, object]", pod)) if is_object else ""
        devices = {*devices_of(cast("dict[str, object]", pod))} if is_object else set[str]()
        body = as_json(pod).encode()
    except (OSError, ValueError, DocumentError, Unreadable) as error:
        hint = "" if file.suffix else "; for a pod of the cluster, NAMESPACE/NAME, give --url"
        fail(f"pod file {file} cannot be read: {file_fault(error)}{hint}", 2)
    if pinned:
        fail(f"pod file {file}: {pinned}", 2)
    if devices and not devices & {*settings.resources}:
        hint = next(filter(None, (nearest(one, settings.resources, 0.9) for one in devices)), "")
        named, expected = ", ".join(map(quote, sorted(devices))), " or ".join(settings.resources)
        fail(f"pod file {file} requests {named}, expected {expected}{hint}", 2)
    try:
        nodes = node_facts(settings.cluster_spec(), settings.rules)
    except (ExtenderError, SettingsError) as error:
        fail(str(error), 2)
    engine = make_engine(settings.rules)
    engine.cluster.replace_nodes(nodes)
    engine.cluster.set_freshness(is_synced=True, observed_at_s=None)
    answer = engine.answer(Verb.EXPLAIN, body, time.time())
    if answer.outcome is Outcome.FAILED:
        fail(f"pod file {file}: {answer.detail}", 2)
    explanation: dict[str, Any] = json.loads(answer.body)
    return explanation


def _fetch(given: Namespace) -> dict[str, Any]:
    namespace, slash, name = given.pod.partition("/")
    if not (namespace and slash and name):
        expected = "expected NAMESPACE/NAME with --url (a file needs no --url)"
        fail(f"POD is {quote(given.pod)}, {expected}", 2)
    try:
        return get_json(given.url, f"/api/v1/explain/{url_quote(namespace)}/{url_quote(name)}")
    except ExtenderError as error:
        fail(str(error), 2)


def _serve(given: Namespace) -> None:
    log = json_logger("info")
    try:
        settings = load_settings(given_settings(ExtenderSettings, given))
        log = json_logger(settings.log_level)
        with ExitStack() as stack:
            _serve_until_signal(settings, stack, log)
    except (ExtenderError, SettingsError) as error:
        log.critical(logkeys.FATAL, reason=str(error))
        raise SystemExit(2) from error
    log.info(logkeys.STOPPED)


def _serve_until_signal(settings: ExtenderSettings, stack: ExitStack, log: Logger) -> None:
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    log.info(logkeys.EFFECTIVE_SETTINGS, **settings.model_dump(mode="json"))
    sockets = wiring.open_sockets(settings)
    stack.callback(sockets.close)
    file = None
    if settings.decision_log is not None:
        file = stack.enter_context(_open_log(settings.decision_log))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(wiring.serve(settings, sockets, file, log))


def _open_log(path: Path) -> IO[str]:
    """Open for appending; what a crash left half written stays on a line of its own."""
    try:
        is_cut = path.is_file() and not _ends_a_line(path)
        # It holds the names and annotations of all users' pods.
        file = open(path, "a", encoding="utf-8", opener=_open_private)  # noqa: SIM115 - Path.open has no opener
    except OSError as error:
        msg = f"setting decision_log {path}: cannot be written: {file_fault(error)}"
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
