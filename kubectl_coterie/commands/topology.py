"""`kubectl coterie topology NODE`: a node's machine, drawn, as a matrix, or as data.

The machine is the Node's annotation `coterie.gpu/topology`, so that a reporter is enough; who has
its GPUs comes from the extender, and without one from the node's own report.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote as url_quote

from kubectl_coterie.cluster import NoExtender, Reading
from kubectl_coterie.commands.session_of import output_of, session_of
from kubectl_coterie.errors import CliError
from kubectl_coterie.machine import (
    GpuOwner,
    draw_machine,
    matrix_lines,
    owners_in_answer,
    owners_in_report,
)
from topology.annotations import decode_devices
from topology.cli.printing import json_report
from topology.errors import CodecError, quote
from topology.model import decode_topology, names, object_at, texts_at
from topology.printable import printable
from topology.report.machine import report_show

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping, Sequence

    from kubectl_coterie.cluster import Session
    from kubectl_coterie.terminal import Output
    from topology.model import NodeTopology

__all__ = ["run"]

_REPORTER = (
    "No extender: owners as the reporter knows them. A GPU that it does not name is free, unless a "
    "pod that Coterie once planned has it."
)


@dataclass(frozen=True, slots=True)
class _Machine:
    """A node's machine, who has its GPUs, and what is not known of that."""

    node: str
    topology: NodeTopology
    owners: Sequence[GpuOwner]
    note: str = ""


def run(given: Namespace) -> int:
    """Show it. Raises `CliError`."""
    output = output_of(given)
    if output.form == "png" and output.stream.isatty():
        msg = "-o png writes a picture, not text: redirect it to a file, as in > machine.png"
        raise CliError(msg)
    machine = asyncio.run(_read(given))
    if given.matrix and not output.form:
        output.print("\n".join(matrix_lines(report_show(machine.topology), output.style)))
    elif output.is_data:
        output.data(_data(machine))
    elif output.form:
        _draw(machine, output)
    else:
        _print(machine, output)
    return 0


async def _read(given: Namespace) -> _Machine:
    async with session_of(given) as session:
        path = f"/api/v1/nodes/{url_quote(given.node, safe='')}"
        async with session.progress.step("reading the node"):
            read = await Reading(session).get(path)
        if read.value is None:
            raise CliError(read.missing)
        annotations = texts_at(object_at(read.value, "metadata"), "annotations")
        topology = _topology(given.node, annotations)
        owners, note = await _owners(session, given.node, annotations, topology)
        return _Machine(given.node, topology, owners, note)


def _topology(node: str, annotations: Mapping[str, str]) -> NodeTopology:
    text = annotations.get(names.TOPOLOGY)
    if text is None:
        msg = (
            f"node {quote(node)} has no annotation {names.TOPOLOGY}: is the node plugin running "
            f"there? `kubectl get pods -A --field-selector spec.nodeName={printable(node)} "
            "-l app.kubernetes.io/part-of=coterie` lists it"
        )
        raise CliError(msg)
    try:
        return decode_topology(text)
    except CodecError as error:
        msg = (
            f"node {quote(node)}: annotation {names.TOPOLOGY} cannot be read: {error}; the log of "
            "the node plugin there says what it published"
        )
        raise CliError(msg) from error


async def _owners(
    session: Session, node: str, annotations: Mapping[str, str], topology: NodeTopology
) -> tuple[tuple[GpuOwner, ...], str]:
    """By GPU, and a sentence where the extender does not say it."""
    why, has_extender = "the extender does not know this node", True
    try:
        api = await session.read_api()
        async with session.progress.step("reading owners from the extender"):
            entry = await api.find(f"nodes/{url_quote(node, safe='')}")
    except NoExtender:
        entry, has_extender = None, False
    except CliError as error:
        entry, why = None, str(error)
    if entry is not None:
        return owners_in_answer(entry, topology), ""
    try:
        report = decode_devices(annotations[names.DEVICES])
    except (KeyError, CodecError):
        said = why if has_extender else "no extender, and no report of the node plugin"
        return (GpuOwner(),) * topology.n_gpus, f"Owners are not shown: {said}"
    note = f"Owners are those that the node's report names, others are not shown: {why}"
    return owners_in_report(report, topology), note if has_extender else _REPORTER


def _print(machine: _Machine, output: Output) -> None:
    topology, style = machine.topology, output.style
    models = dict.fromkeys(gpu.model or "unknown model" for gpu in topology.gpus)
    kind = f"{topology.name}   " if topology.name else ""
    head = f"{machine.node}   {kind}{topology.n_gpus} x {', '.join(models)}"
    lines = [style.paint(printable(head), "bold"), ""]
    lines += draw_machine(topology, machine.owners, style)
    if machine.note:
        lines += ["", printable(machine.note)]
    output.print("\n".join(lines).rstrip())


def _data(machine: _Machine) -> dict[str, object]:
    """The report of `coterie-topology show --json`, and who has each GPU."""
    report = json.loads(json_report(report_show(machine.topology)))
    owners = [{"gpu": k, **asdict(owner)} for k, owner in enumerate(machine.owners)]
    return {"node": machine.node, **report, "owners": owners, "note": machine.note or None}


def _draw(machine: _Machine, output: Output) -> None:
    try:
        import topology.draw.render as drawing  # noqa: PLC0415 - needs matplotlib
    except ImportError as error:
        msg = (
            f"{error}. With pipx: `pipx inject coterie matplotlib`, or install the wheel as "
            "`pipx install --force './coterie-VERSION-py3-none-any.whl[draw]'`. Without it, "
            "-o json and the drawing in the terminal are there"
        )
        raise CliError(msg) from error
    pods = list(dict.fromkeys(owner.pod for owner in machine.owners if owner.pod is not None))
    sets = [
        (pod, [k for k, owner in enumerate(machine.owners) if owner.pod == pod]) for pod in pods
    ]
    if machine.note:
        sys.stderr.write(f"{printable(machine.note)}\n")
    if output.form == "svg":
        output.print(drawing.draw_topology(machine.topology, sets=sets, title=machine.node))
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "machine.png"
        drawing.save_png(machine.topology, file, sets=sets, title=machine.node)
        sys.stdout.buffer.write(file.read_bytes())
    sys.stdout.flush()
