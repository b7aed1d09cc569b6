"""Records a machine into a support bundle: what its library answers, and what is made of it.

Method: the plugin's own reader reads twice, polls the faults and waits a moment for events, while
every call of the vendor's library is recorded; then programs, /sys, /proc and /dev. Nothing is
changed on the machine. A step that fails or does not end costs what it would have recorded: the
bundle is written with the rest, and a note says what is missing.
"""

from __future__ import annotations

import os
import platform
import threading
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from kube.errors import SettingsError
from plugin.errors import READER_ERRORS, PluginError, ProgramError
from plugin.observe.reading_json import reading_document
from plugin.programs import run_program
from plugin.record.bundle import Bundle
from plugin.record.call_lines import call_lines
from plugin.record.kernel_files import device_nodes, proc_files, sys_files
from topology.errors import TopologyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from plugin.machine import (
        CallLog,
        GpuEvent,
        GpuReading,
        MachineReader,
        MachineReading,
        Program,
        ReaderCondition,
    )
    from plugin.record.redaction import Redaction
    from plugin.sysfs import Sysfs

__all__ = ["SCHEMA_VERSION", "Sources", "record"]

SCHEMA_VERSION = 1
"""Version of the bundle; a member that is taken away or changes its meaning raises it."""
EVENTS_S = 1.0
"""How long events are awaited: enough to register for them, too short to expect one."""
READ_S = 300.0
"""How long all that the reader does may take: it waits for GPUs that hang for minutes itself."""
READ_THREAD = "coterie-record"
PROGRAM_S = 60.0
"""For each program: without persistence mode `nvidia-smi` initialises every GPU first."""
CALLS = "library-calls.jsonl"

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What to record from.

    `open_reader` gives the machine's reader, which is closed in the end; `publish` the text of
    `coterie.gpu/topology` for a reading, None where none is published.
    """

    open_reader: Callable[[], MachineReader]
    record_calls: Callable[[], AbstractContextManager[CallLog]]
    facts_of: Callable[[GpuReading], Mapping[str, object]]
    publish: Callable[[MachineReading], str | None]
    programs: Sequence[Program]
    kernel: Sysfs
    proc_patterns: Sequence[str]
    dev_root: Path
    dev_patterns: Sequence[str]
    about: Mapping[str, object]


def record(sources: Sources, redaction: Redaction, progress: Callable[[str], None]) -> Bundle:
    """Record everything; `progress` gets a sentence as each step begins."""
    bundle = Bundle(redaction)
    progress("reading the machine")
    _record_machine(sources, bundle)
    for program in sources.programs:
        progress(f"running {' '.join(program.words)}")
        _record_program(program, bundle)
    progress("reading /sys, /proc and /dev")
    bundle.add_json("sys.json", sys_files(sources.kernel.sys))
    for name, text in proc_files(sources.kernel.proc, sources.proc_patterns).items():
        bundle.add_lines(f"proc/{name}", text + "\n")
    bundle.add_json("dev.json", device_nodes(sources.dev_root, sources.dev_patterns))
    about = {
        "schema_version": SCHEMA_VERSION,
        **sources.about,
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "uid": os.geteuid(),
        "capabilities": _capabilities(sources.kernel.proc),
        "identifiers": "kept" if redaction.keeps else "replaced",
        "notes": bundle.notes,
    }
    bundle.add_json("about.json", about)
    return bundle


# --- the machine ---


@dataclass
class _Machine:
    """What the reader gave, as far as it came."""

    first: MachineReading | None = None
    second: MachineReading | None = None
    faults: Mapping[str, str] | None = None
    events: Sequence[GpuEvent] = ()
    condition: ReaderCondition | None = None


def _record_machine(sources: Sources, bundle: Bundle) -> None:
    machine = _Machine()
    with sources.record_calls() as log:
        failure = _failure_within(READ_S, lambda: _read(sources, machine))
        bundle.members[CALLS] = call_lines(log.calls(), bundle.redaction)
    if failure is not None:
        bundle.note(f"reading the machine: {failure}")
    if machine.first is None:
        return
    bundle.add_json("reading.json", reading_document(machine.first, sources.facts_of))
    if machine.second is not None and machine.second != machine.first:
        bundle.add_json("second-reading.json", reading_document(machine.second, sources.facts_of))
        bundle.note("two readings differ: compare reading.json and second-reading.json")
    if machine.faults is not None:
        bundle.add_json("faults.json", machine.faults)
    if machine.condition is not None:
        bundle.add_json("condition.json", _condition(machine.condition))
    if machine.events:
        bundle.add_json("events.json", [_event(one) for one in machine.events])
    try:
        published = sources.publish(machine.first)
    except (PluginError, SettingsError, TopologyError) as error:
        bundle.note(f"the published topology: {error}")
    else:
        bundle.members["published-topology.json"] = bundle.redaction.text(f"{published or ''}\n")


def _condition(condition: ReaderCondition) -> dict[str, object]:
    return {
        "without_events": sorted(condition.without_events),
        "restart_reason": condition.restart_reason,
    }


def _event(event: GpuEvent) -> dict[str, object]:
    return {
        "kind": event.kind.value,
        "uuid": event.uuid,
        "code": None if event.code is None else event.code.number,
        "partition": event.partition,
    }


def _read(sources: Sources, machine: _Machine) -> None:
    with closing(sources.open_reader()) as reader:
        machine.first = reader.read()
        machine.faults = reader.faults()
        machine.events = reader.wait(EVENTS_S)
        machine.condition = reader.condition()
        machine.second = reader.read()


def _failure_within(within_s: float, call: Callable[[], None]) -> str | None:
    """Why a call failed, or that it does not end; it is then left behind in its thread."""
    done: Future[None] = Future()

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - raised again by `result`
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=run, name=READ_THREAD, daemon=True).start()
    try:
        done.result(within_s)
    except TimeoutError:
        return f"no end after {within_s:g} s; {CALLS} has the calls that have not returned"
    except READER_ERRORS as error:
        return str(error)
    return None


# --- the rest ---


def _record_program(program: Program, bundle: Bundle) -> None:
    name = "-".join([program.words[0].rpartition("/")[2], *program.words[1:]]).replace("--", "-")
    try:
        output = run_program(program.words, timeout_s=PROGRAM_S, variables=program.variables)
    except ProgramError as error:
        bundle.note(f"{' '.join(program.words)}: {error}")
        output = error.output
    if output:
        bundle.add_lines(f"programs/{name}.txt", output)


def _capabilities(proc: Path) -> str | None:
    """The effective capabilities of this process, in hexadecimal (proc(5), `CapEff`)."""
    try:
        status = (proc / "self/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    lines = (line.split() for line in status.splitlines() if line.startswith("CapEff:"))
    return next((words[1] for words in lines), None)
