"""`kubectl coterie check`: what is wrong with the installation, and what to do about each."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from kubectl_coterie.check import Finding, Status, findings_json, run_checks
from kubectl_coterie.commands.session_of import output_of, session_of
from kubectl_coterie.installation import gather
from kubectl_coterie.terminal import Column, Table
from topology.cli.program import version
from topology.printable import printable

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from kubectl_coterie.terminal import Output, Style

__all__ = ["run"]

_COLOURS = {
    Status.OK: "green",
    Status.WARNING: "yellow",
    Status.FAILED: "red",
    Status.NOT_KNOWN: "dim",
}


def run(given: Namespace) -> int:
    """Check it; 1 where a check failed. Raises `CliError`."""
    findings = asyncio.run(_findings(given))
    output = output_of(given)
    if output.is_data:
        output.data({"items": findings_json(findings)})
    else:
        _print(findings, output)
    return int(any(finding.state is Status.FAILED for finding in findings))


async def _findings(given: Namespace) -> list[Finding]:
    async with session_of(given) as session:
        return run_checks(await gather(session, version=version(), now_s=time.time()))


def _print(findings: Sequence[Finding], output: Output) -> None:
    style = output.style
    lines = _table(style).lines(findings)
    shown = [lines[0]]
    for finding, line in zip(findings, lines[1:], strict=True):
        shown.append(line)
        if finding.todo:
            shown.append(f"  -> {printable(finding.todo)}")
    counts = [
        f"{n} {state.value}"
        for state in Status
        if (n := sum(finding.state is state for finding in findings))
    ]
    output.print("\n".join([*shown, "", ", ".join(counts)]))


def _table(style: Style) -> Table[Finding]:
    return Table(
        (
            Column("CHECK", lambda finding: finding.check),
            Column(
                "STATE",
                lambda finding: finding.state.value,
                paint=lambda finding, text: style.paint(text, _COLOURS[finding.state]),
            ),
            Column("FOUND", lambda finding: finding.about),
        )
    )
