"""`coterie-topology`: what a node's recording shows, what a GPU set is worth, which set is best.

It decides nothing itself: it reads files, calls `topology.report` and prints; the same figures
place pods. What values sets needs numpy and drawing matplotlib, so only the commands that do it
load them.

Errors are one sentence on stderr, with an exit code (`ExitCode`, explained in the help). Manual:
docs/cli.md.
"""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from topology.annotations import PlacementPolicy
from topology.cli.options import AuditForm, make_parser
from topology.cli.printing import json_report, screen_width
from topology.cli.program import fail
from topology.cli.reading import read_list, read_machine
from topology.errors import (
    CodecError,
    ImportFormatError,
    InvalidRequest,
    TopologyError,
    file_fault,
    quote,
)
from topology.model import encode_topology
from topology.printable import printable
from topology.recordings import load_recording, recording_names
from topology.report.blocks import block_text
from topology.report.listing import (
    list_best,
    list_rank,
    list_recordings,
    list_show,
    list_value,
)
from topology.report.machine import report_recordings, report_show

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from topology.model import NodeTopology

__all__ = ["main"]

ROWS = 10
"""Rows of `rank` where no limit is given."""


class ExitCode(int, Enum):
    """What the program's exit says."""

    ANSWERED = 0
    NO_SET_FITS = 1
    USAGE = 2
    FILE = 3
    NO_MATPLOTLIB = 4


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program and leave it with its exit code, by `SystemExit`."""
    try:
        given = make_parser().parse_args(arguments)
        sys.exit(_COMMANDS[given.command](given))
    except (ImportFormatError, CodecError) as error:
        fail(str(error), ExitCode.FILE)
    except TopologyError as error:
        fail(str(error), ExitCode.USAGE)


def _gain(given: Namespace) -> ExitCode:
    from topology.audit import list_gain, report_gain  # noqa: PLC0415 - loads numpy

    report = report_gain(_machine(given))
    return _print(json_report(report) if given.json else block_text(list_gain(report)))


def _show(given: Namespace) -> ExitCode:
    if given.annotation and given.json:
        msg = "--annotation and --json exclude each other, expected one"
        raise InvalidRequest(msg)
    topology = _machine(given)
    if given.annotation:
        return _print(encode_topology(topology) + "\n")
    report = report_show(topology)
    return _print(json_report(report) if given.json else block_text(list_show(report)))


def _value(given: Namespace) -> ExitCode:
    if given.node:
        return _value_of_nodes(given)
    if given.gpus is None:
        msg = "--gpus is not given, expected GPU indices, or --node for a set over several nodes"
        raise InvalidRequest(msg)
    from topology.report.compute import report_value  # noqa: PLC0415 - loads numpy

    report = report_value(_machine(given), given.gpus)
    return _print(json_report(report) if given.json else block_text(list_value(report)))


def _value_of_nodes(given: Namespace) -> ExitCode:
    for option, value in (
        ("FILE", given.file),
        ("--gpus", given.gpus),
        ("--measured", given.measured),
    ):
        if value is not None:
            msg = (
                f"--node with {option}, expected --node alone: it names file and GPUs of each node"
            )
            raise InvalidRequest(msg)
    from topology.report.group import list_group, report_group  # noqa: PLC0415 - loads numpy

    machines = {
        file: read_machine(file, given.gpu_model, given.format)
        for file in dict.fromkeys(file for file, _ in given.node)
    }
    report = report_group([(machines[file], gpus) for file, gpus in given.node])
    return _print(json_report(report) if given.json else block_text(list_group(report)))


def _best(given: Namespace) -> ExitCode:
    from topology.report.compute import BestQuery, report_best  # noqa: PLC0415 - loads numpy

    policy = PlacementPolicy(
        affinity=given.affinity,
        strength=given.policy,
        min_bandwidth_gbytes_per_s=given.min_bandwidth,
        nic=given.nic,
    )
    question = BestQuery(given.size, given.free, given.must_include, policy)
    report = report_best(_machine(given), question)
    _print(json_report(report) if given.json else block_text(list_best(report)))
    return ExitCode.NO_SET_FITS if report.selected is None else ExitCode.ANSWERED


def _rank(given: Namespace) -> ExitCode:
    from topology.report.compute import report_rank  # noqa: PLC0415 - loads numpy

    limit = given.limit if given.json else None
    report = report_rank(_machine(given), given.size, limit=limit)
    if given.json:
        return _print(json_report(report))
    n_rows = given.limit or (report.n_sets if given.all else ROWS)
    return _print(block_text(list_rank(report, n_rows=n_rows, is_every_set=given.all)))


def _draw(given: Namespace) -> ExitCode:
    target = Path(given.output)
    is_png = target.suffix.lower() == ".png"
    if given.output != "-" and not is_png and target.suffix.lower() != ".svg":
        msg = f"--output is {quote(given.output)}, expected a name in .svg or .png, or -"
        raise InvalidRequest(msg)
    sets = [(f"set {k}", gpus) for k, gpus in enumerate(given.gpus, start=1)]
    topology = read_machine(given.file, given.gpu_model, given.format)
    try:
        import topology.draw.render as drawing  # noqa: PLC0415 - needs matplotlib
    except ImportError as error:
        fail(str(error), ExitCode.NO_MATPLOTLIB)
    try:
        if is_png:
            drawing.save_png(topology, target, sets=sets, title=given.title)
        else:
            svg = drawing.draw_topology(topology, sets=sets, title=given.title)
            if given.output == "-":
                return _print(svg)
            target.write_text(svg, encoding="utf-8")
        n_bytes = target.stat().st_size
    except OSError as error:
        fail(f"{quote(given.output)} cannot be written: {error.strerror}", ExitCode.FILE)
    return _print(f"drawn: {printable(given.output)}, {n_bytes} bytes\n")


def _recordings(given: Namespace) -> ExitCode:
    report = report_recordings({name: load_recording(name) for name in recording_names()})
    return _print(json_report(report) if given.json else block_text(list_recordings(report)))


def _audit(given: Namespace) -> ExitCode:
    from topology.audit import WIDTH, audit, list_audit, read_cluster  # noqa: PLC0415 - loads numpy

    if given.nodes == given.pods == "-":
        msg = "--nodes and --pods are both -, expected standard input for one of them"
        raise InvalidRequest(msg)
    lists = read_list(given.nodes, "--nodes"), read_list(given.pods, "--pods")
    report = audit(read_cluster(*lists, nodes_name=given.nodes, pods_name=given.pods))
    if given.output is AuditForm.JSON:
        return _print(json_report(report))
    return _print(block_text(list_audit(report, screen_width(sys.stdout, WIDTH))))


_COMMANDS = {
    "gain": _gain,
    "show": _show,
    "value": _value,
    "best": _best,
    "rank": _rank,
    "draw": _draw,
    "recordings": _recordings,
    "audit": _audit,
}


def _machine(given: Namespace) -> NodeTopology:
    return read_machine(given.file, given.gpu_model, given.format, given.measured)


def _print(text: str) -> ExitCode:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader left, as `head` does.
        _discard_output()
    except OSError as error:
        _discard_output()
        fail(f"standard output cannot be written: {file_fault(error)}", ExitCode.FILE)
    return ExitCode.ANSWERED


def _discard_output() -> None:
    """Write no more: the interpreter would flush again at its end."""
    sys.stdout = Path("/dev/null").open("w", encoding="utf-8")  # noqa: SIM115 - until the end
