"""The node plugin's command line, and the one place where its process is set up.

`run` serves this machine's GPUs to the kubelet and publishes them, until SIGTERM; SIGHUP has it
start over. `discover` shows what it reads of this machine. `measure` runs a benchmark for each pair
of GPUs and writes the file that the setting `measurements` names. `record` writes a support bundle.
`clean` removes what the plugin left on the node.

Exit codes: 0 done; 1 the machine cannot be read, the plugin failed, or something could not be
removed; 2 bad settings, files or arguments.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from argparse import ArgumentTypeError
from contextlib import ExitStack, closing, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from kube.errors import SettingsError
from kube.log import json_logger
from kube.settings import add_options, given_settings, go_booleans
from plugin import logkeys
from plugin.config import PluginSettings, load_settings
from plugin.errors import MeasurementError, PluginError, ReadingError
from plugin.measure import DEFAULT_COMMAND, DEFAULT_MESSAGE_BYTES, Benchmark, all_pairs, measure
from plugin.observe import StatusEndpoint, serving
from plugin.vendor import VENDOR
from plugin.wiring import Running, open_reader, run_plugins
from topology.cli.program import (
    Parser,
    add_command,
    add_completion_command,
    fail,
    program_parser,
    reader_may_leave,
)
from topology.errors import quote
from topology.model import write_measurement

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from kube.log import Logger
    from plugin.config import LoadedSettings
    from plugin.machine import MachineReading

__all__ = ["main", "parser"]

_EXIT_CODES = """\
0 done; 1 the machine cannot be read, the plugin failed, or something could not be removed;
2 bad settings, files or arguments."""
N = TypeVar("N", int, float)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    words = sys.argv[1:] if arguments is None else arguments
    given = parser().parse_args(go_booleans(PluginSettings, words))
    given.run(given_settings(PluginSettings, given), given)


def parser() -> Parser:
    """The options of each command; `run` of what is parsed does it."""
    about = "Publish this node's GPU topology and serve its GPUs to the kubelet."
    root = program_parser("coterie-plugin", about, exit_codes=_EXIT_CODES)
    commands = root.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[..., None], about: str) -> Parser:
        one = add_command(commands, name, about)
        add_options(one, PluginSettings)
        one.set_defaults(run=run)
        return one

    command("run", _serve, "serve this machine to the kubelet, or report it, until SIGTERM")
    discover = command("discover", _discover, "show GPUs, links, NICs, and what could not be read")
    discover.add_argument("--json", action="store_true", help="Print JSON, for programs.")
    about = "run an all-reduce benchmark on each pair of GPUs of an idle node and write the figures"
    measuring = command("measure", _measure, about)
    measuring.add_argument("--out", type=Path, required=True, metavar="FILE", help="To write.")
    measuring.add_argument(
        "--command",
        default=DEFAULT_COMMAND,
        metavar="COMMAND",
        help="The benchmark; {n} is the number of GPUs, {bytes} the message size.",
    )
    measuring.add_argument(
        "--message-bytes", type=_at_least(1, int), default=DEFAULT_MESSAGE_BYTES, metavar="BYTES"
    )
    measuring.add_argument(
        "--timeout-s",
        type=_at_least(0.1, float),
        default=Benchmark().timeout_s,
        metavar="SECONDS",
        help="That one run may take.",
    )
    measuring.add_argument("--whole", action="store_true", help="Measure all GPUs together too.")
    about = "record what the driver and the kernel report of this machine, as a support bundle"
    recording = command("record", _record, about)
    recording.add_argument("out", metavar="OUT", help="A .tar.gz file to write; - for stdout.")
    recording.add_argument(
        "--keep-ids",
        action="store_true",
        help="Keep UUIDs, serial numbers, host and process names, which are replaced otherwise.",
    )
    cleaning = command("clean", _clean, "remove what an ended plugin left on this node")
    for option, about in (
        ("--annotations", "Also remove the annotations that the plugin wrote on its Node."),
        ("--force", "Remove CDI specifications although containers may still need them."),
        ("--dry-run", "Remove nothing, and print what would be removed."),
        (
            "--stay",
            "Then wait for SIGTERM, as a pod of a DaemonSet has to; /readyz says when it is clean.",
        ),
    ):
        cleaning.add_argument(option, action="store_true", help=about)
    add_completion_command(commands, root.prog)
    return root


def _at_least(least: N, read: Callable[[str], N]) -> Callable[[str], N]:
    def number(text: str) -> N:
        with suppress(ValueError):
            if (value := read(text)) >= least:
                return value
        msg = f"{quote(text)}, expected {read.__name__} of at least {least}"
        raise ArgumentTypeError(msg)

    return number


def _serve(flags: Mapping[str, object], _: Namespace) -> None:
    log = json_logger("info")
    try:
        log = json_logger(load_settings(flags).settings.log_level)
        asyncio.run(_run(flags, log))
    except (SettingsError, PluginError) as error:
        log.critical(logkeys.FATAL, reason=str(error))
        raise SystemExit(2 if isinstance(error, SettingsError) else 1) from error
    log.info(logkeys.STOPPED)


def _discover(flags: Mapping[str, object], given: Namespace) -> None:
    from plugin.observe import reading_text  # noqa: PLC0415 - only here, its memory is counted
    from plugin.observe.reading_json import reading_json  # noqa: PLC0415 - as above

    reading = _read(_load_here(flags))
    with reader_may_leave():
        if given.json:
            print(reading_json(reading, VENDOR.facts_of))
        else:
            print(reading_text(reading, VENDOR.partitions))


def _measure(flags: Mapping[str, object], given: Namespace) -> None:
    reading = _read(_load_here(flags))
    uuids = [gpu.uuid for gpu in reading.gpus]
    pairs = all_pairs(len(uuids))
    if not pairs:
        fail(f"this machine has {len(uuids)} GPU, expected two at least", 1)
    sets = [*pairs, *([tuple(range(len(uuids)))] if given.whole else [])]
    n_done = 0

    def advance(gpus: tuple[int, ...], gbytes_per_s: float) -> None:
        nonlocal n_done
        n_done += 1
        figure = f"{','.join(map(str, gpus))}: {gbytes_per_s:.1f} GB/s"
        print(f"{n_done}/{len(sets)} {figure}", file=sys.stderr)

    try:
        found = measure(
            uuids,
            sets,
            benchmark=Benchmark(given.command, given.message_bytes, given.timeout_s),
            visible_devices=VENDOR.visible_devices,
            date=datetime.now(UTC).date().isoformat(),
            advance=advance,
        )
    except MeasurementError as error:
        fail(str(error), 1)
    text = write_measurement(found)
    try:
        given.out.write_text(text, encoding="utf-8")
    except OSError as error:
        print(text, end="")  # it may have taken hours
        fail(f"file {given.out} cannot be written, see standard output: {error.strerror}", 2)
    print(f"{len(found.pairs)} pairs measured, written to {given.out}")


def _record(flags: Mapping[str, object], given: Namespace) -> None:
    from plugin.record import record_to  # noqa: PLC0415 - only here, its memory is counted

    try:
        record_to(given.out, _load_here(flags), keeps_ids=given.keep_ids, say=_say)
    except SettingsError as error:
        fail(str(error), 2)


def _clean(flags: Mapping[str, object], given: Namespace) -> None:
    from plugin.clean import CleanOptions, clean_node  # noqa: PLC0415 - only here, as in `_record`

    options = CleanOptions(
        with_annotations=given.annotations, is_forced=given.force, is_dry_run=given.dry_run
    )
    loaded = _load(flags)
    ended, cleaned = threading.Event(), threading.Event()
    with ExitStack() as stack:
        try:
            if given.stay:  # from here on, since a process 1 has no default for these signals
                for number in (signal.SIGTERM, signal.SIGINT):
                    signal.signal(number, lambda _number, _frame: ended.set())
                stack.enter_context(_answering_probes(loaded.settings, cleaned))
            is_clean = clean_node(loaded, options, partial(print, flush=True))
        except SettingsError as error:
            fail(str(error), 2)
        if not is_clean:
            raise SystemExit(1)
        cleaned.set()
        if given.stay:
            ended.wait()


def _answering_probes(
    settings: PluginSettings, cleaned: threading.Event
) -> AbstractContextManager[int]:
    """Serve the plugin's routes: a rollout of pods that clean ends when all nodes are clean."""
    endpoint = StatusEndpoint(
        live=lambda: "", ready=lambda: "" if cleaned.is_set() else "the node is not clean yet"
    )
    return serving(endpoint, address=settings.metrics_address, port=settings.metrics_port)


async def _run(flags: Mapping[str, object], log: Logger) -> None:
    running = Running()
    loop = asyncio.get_running_loop()
    work = asyncio.ensure_future(
        run_plugins(lambda: load_settings(flags), running=running, log=log)
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, work.cancel)
    loop.add_signal_handler(signal.SIGHUP, running.reload)
    with suppress(asyncio.CancelledError):
        await work


def _load(flags: Mapping[str, object]) -> LoadedSettings:
    try:
        return load_settings(flags)
    except SettingsError as error:
        fail(str(error), 2)


def _load_here(flags: Mapping[str, object]) -> LoadedSettings:
    """A simulated machine takes its ids from the node's name; without one any will do."""
    loaded = _load(flags)
    return loaded if loaded.settings.node_name else _load({**flags, "node_name": "here"})


def _read(loaded: LoadedSettings) -> MachineReading:
    try:
        with closing(open_reader(loaded.settings)) as reader:
            return reader.read()
    except SettingsError as error:
        fail(str(error), 2)
    except ReadingError as error:
        fail(str(error), 1)


def _say(text: str) -> None:
    """Say something beside what a program may read from standard output."""
    print(text, file=sys.stderr, flush=True)
